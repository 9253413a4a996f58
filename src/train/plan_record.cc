#include "train/plan_record.h"

#include <exception>

#include <fmt/format.h>

#include "trireme/base/log.h"
#include "trireme/io/whole_file.h"
#include "trireme/plan/planned_step.h"

namespace trireme {

void PlanRecord::write(const RunHistory& history) noexcept {
  try {
    try {
      const std::optional<Config>& config = history.config();
      if (!config) return;
      const Config::Plan& plan = config->plan;
      if (!plan.is_of(config->grid.shape().ranks() * config->grid.islands)) return;
      write_whole_file(history.folder() + "/plan.json",
                       plan::write_planned_step({.low = plan.low.value_or(*plan.step),
                                                 .predicted = *plan.step,
                                                 .high = plan.high.value_or(*plan.step),
                                                 .measured = measured_step(history.steps()),
                                                 .device = plan.device,
                                                 .network = plan.network}));
    } catch (const std::exception& error) {
      if (!failed_) report_line(fmt::format("no plan.json: {}; the run goes on", error.what()));
      failed_ = true;
    }
  } catch (...) {
    // There was no memory for the line either.
  }
}

}  // namespace trireme
