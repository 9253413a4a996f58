// For commands with an action as first argument: `trireme checkpoint verify`, `trireme data list`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/config/options.h"

namespace trireme::cli {

// Returns the one of `actions` with this name. Throws ConfigError that suggests the nearest name.
template <class Action>
const Action& find_action(std::string_view command, const std::vector<Action>& actions,
                          const std::string& name) {
  std::vector<std::string> names;
  for (const Action& action : actions) {
    if (action.name == name) return action;
    names.emplace_back(action.name);
  }
  const auto nearest = nearest_name(name, names);
  throw ConfigError(fmt::format("{} {}: unknown; {}", command, shown(name),
                                nearest ? fmt::format("did you mean {}?", *nearest)
                                        : fmt::format("there are {}", fmt::join(names, ", "))));
}

}  // namespace trireme::cli
