#include "trireme/tasks/task.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

#include "tasks/causal_language_model.h"

namespace trireme::tasks {

const Task& find_task(std::string_view name) {
  const std::array<const Task*, 1> all = {&causal_language_model()};
  std::vector<std::string_view> names;
  for (const Task* task : all) {
    if (task->name() == name) return *task;
    names.push_back(task->name());
  }
  throw ConfigError(fmt::format("task {}: is not one of {}", shown(name), fmt::join(names, ", ")));
}

const Task& task_of(const models::ModelRequest& model) {
  return find_task(models::find_family(model.family).task());
}

}  // namespace trireme::tasks
