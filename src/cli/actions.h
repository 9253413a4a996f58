// Commands with an action as first argument: `trireme checkpoint verify`, `trireme data list`.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"

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

// The same for commands that take nothing but the name.
template <class Action>
const Action& find_only_action(std::string_view command, const std::vector<Action>& actions,
                               const std::vector<std::string>& words) {
  if (words.size() == 1) return find_action(command, actions, words[0]);
  std::vector<std::string> names;
  for (const Action& action : actions) names.emplace_back(action.name);
  throw ConfigError(fmt::format("{} takes one word, {}, not '{}'", command,
                                fmt::join(names, " or "),
                                shown(fmt::format("{}", fmt::join(words, " ")))));
}

// The flags of a command's actions are declared together. Throws ConfigError if an argument is a
// flag that is not among `action.flags`.
template <class Action>
void refuse_flags_of_others(std::string_view command, const Action& action, const Options& options,
                            const std::vector<std::string>& arguments) {
  for (const std::string& name : options.names()) {
    if (std::find(action.flags.begin(), action.flags.end(), name) != action.flags.end()) continue;
    for (const std::string& argument : arguments) {
      if (argument != "--" + name && !argument.starts_with("--" + name + "=")) continue;
      throw ConfigError(fmt::format("{} {} takes no --{}; it takes --{}", command, action.name,
                                    name, fmt::join(action.flags, ", --")));
    }
  }
}

}  // namespace trireme::cli
