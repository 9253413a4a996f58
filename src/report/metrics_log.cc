#include "trireme/report/metrics_log.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/wall_clock.h"
#include "trireme/io/whole_file.h"

namespace trireme {
namespace {

// Returns the lines that belong to steps up to `step`. Drops a line that a killed run left half
// written.
std::string lines_up_to(const std::string& path, std::int64_t step) {
  std::string kept, line;
  auto file = FileReader::open_if_there(path, ExitStatus::kRunFolder);
  while (file && file->line(line)) {
    const Json object = Json::parse_or_null(line);
    const Json* found = object.find("step");
    if (found && found->is_integer() && found->integer() <= step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& folder, std::int64_t step, const tasks::Unit& unit,
                       bool tensorboard)
    : path_(folder + "/metrics.jsonl"), unit_(unit) {
  const std::string earlier = lines_up_to(path_, step);
  write_whole_file(path_, earlier);
  file_.emplace(path_);
  const std::string events = folder + "/tensorboard";
  cut_back_event_files(events, step);
  if (tensorboard) tensorboard_.emplace(events, step, unit, earlier);
}

void MetricsLog::write(const StepMetrics& m) {
  Json object = Json::object({{"step", m.step},
                              {"time", unix_seconds_for_records()},
                              {"loss", m.loss},
                              {"lr", m.learning_rate},
                              {"grad_norm", m.gradient_norm},
                              {std::string(unit_.many), m.units},
                              {unit_.rate_key(), m.units_per_second},
                              {"step_s", m.step_seconds},
                              {"wait_data_s", m.wait_data_seconds},
                              {"comm_s", m.exposed_comm_seconds},
                              {"memory_bytes", static_cast<std::int64_t>(m.memory_bytes)}});
  if (m.device_memory_bytes > 0.0) {
    object["device_memory_bytes"] = static_cast<std::int64_t>(m.device_memory_bytes);
  }
  for (std::size_t use = 0; use < kMemoryUses; ++use) {
    object["memory"][name_of(static_cast<MemoryUse>(use))] =
        static_cast<std::int64_t>(m.memory_peak[use]);
  }
  if (m.loss_scale) object["loss_scale"] = *m.loss_scale;
  if (!m.losses_of_islands.empty()) {
    Json& losses = object["island_losses"] = Json::array();
    for (const double loss : m.losses_of_islands) losses.push_back(loss);
  }
  if (m.skipped) object["skipped"] = true;
  if (m.no_targets) object["no_targets"] = true;
  append(object);
}

void MetricsLog::write(const Evaluation& e) {
  Json object = Json::object({{"step", e.step},
                              {"time", unix_seconds_for_records()},
                              {"eval_loss", e.loss},
                              {"eval_s", e.seconds}});
  if (e.top1) object["eval_top1"] = *e.top1;
  if (e.top5) object["eval_top5"] = *e.top5;
  if (e.of_average) object["eval_weights"] = "average";
  append(object);
}

void MetricsLog::append(const Json& line) {
  file_->append(line.dump() + "\n");
  if (tensorboard_) tensorboard_->write(line);
}

}  // namespace trireme
