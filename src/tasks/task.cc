#include "trireme/tasks/task.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/printable.h"

#include "tasks/causal_language_model.h"
#include "tasks/classification.h"
#include "tasks/file_here.h"
#include "tasks/masked_language_model.h"

namespace trireme::tasks {
namespace {

std::array<const Task*, 3> all_tasks() {
  return {&causal_language_model(), &masked_language_model(), &classification()};
}

}  // namespace

std::string Unit::rate() const {
  return fmt::format("{}/s", many);
}

std::string Unit::rate_key() const {
  return fmt::format("{}_per_s", many);
}

const std::vector<Unit>& units() {
  static const std::vector<Unit> kUnits = [] {
    std::vector<Unit> all;
    for (const Task* task : all_tasks()) {
      if (std::ranges::count(all, task->unit()) == 0) all.push_back(task->unit());
    }
    return all;
  }();
  return kUnits;
}

Unit unit_in(const Json& object) {
  for (const Unit& unit : units()) {
    if (object.find(unit.rate_key())) return unit;
  }
  return {};
}

std::string mark_of(const std::vector<DataMark>& marks, std::string_view attribute) {
  const auto found = std::ranges::find(marks, attribute, &DataMark::attribute);
  return found == marks.end() ? std::string() : found->value;
}

std::string samples_text(const Task& task, std::int64_t samples, const Shape& sample) {
  return fmt::format("{} {} of {}", samples, task.samples_name(), task.size_of(sample));
}

const Task& find_task(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Task* task : all_tasks()) {
    if (task->name() == name) return *task;
    names.push_back(task->name());
  }
  throw ConfigError(fmt::format("task {}: is not one of {}", shown(name), fmt::join(names, ", ")));
}

std::optional<std::string> file_here(const std::vector<WeightedPath>& paths) {
  for (const WeightedPath& path : paths) {
    if (look_ahead(path.path, ExitStatus::kData).is_file()) return path.path;
  }
  return {};
}

const Task& task_of(const models::ModelRequest& model) {
  return find_task(models::find_family(model.family).task());
}

}  // namespace trireme::tasks
