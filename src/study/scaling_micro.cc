// The batch.micro of a study that gives no number.
#include <algorithm>
#include <functional>
#include <iterator>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/io/whole_file.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/run_grid.h"
#include "trireme/study/scaling_study.h"
#include "trireme/tasks/task.h"

namespace trireme::scaling {
namespace {

std::optional<int> micro_of_study(const std::string& folder) {
  const std::string path = folder + "/study.json";
  if (folder.empty() || !look_at(path, ExitStatus::kRunFolder).is_there()) return {};
  const Json study = Json::parse_or_null(read_file(path, ExitStatus::kRunFolder));
  const Json* config = study.find("config");
  if (config == nullptr || !config->is_text()) return {};
  try {
    return micro_of_keys(config_from_ini(config->text(), path));
  } catch (const ConfigError&) {  // it is no study of these settings, and will be refused
    return {};
  }
}

}  // namespace

void settle_micro(StudyPlan& plan, const std::vector<Point>& points, const std::string& folder,
                  const RanksAhead& ranks) {
  write_out_micro(plan.config);
  if (plan.config.batch.micro.is_known()) return;
  if (const std::optional<int> before = micro_of_study(folder)) {
    plan.config.batch.micro = *before;
    return;
  }
  const models::Model model =
      models::resolve(plan.config.model,
                      tasks::task_of(plan.config.model).facts_on_this_host(plan.config.data.train));
  std::optional<std::vector<int>> of_all;
  int most = plan.config.batch.global;
  for (const Point& point : points) {
    if (point.repeat > 1) continue;
    const Config config = config_of(plan, point, "run");
    const GridShape grid = resolve_run_grid(config, point.grid.ranks());
    most = std::min(most, settled_micro_ahead(config, model, grid, ranks).samples);
    const std::vector<int> possible = possible_micro(config, grid);
    std::vector<int> common;
    if (of_all) {
      std::ranges::set_intersection(*of_all, possible, std::back_inserter(common), std::greater());
    }
    of_all = of_all ? common : possible;
  }
  std::vector<int> sizes = of_all.value_or(std::vector<int>());
  std::erase_if(sizes, [&](int size) { return size > most; });
  // Where the points have none in common, the check of the points tells what keeps this from them.
  plan.config.batch.micro = sizes.empty() ? 1 : sizes.front();
}

}  // namespace trireme::scaling
