// Configurations of flags, for tests.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/config.h"

#include "support/message_of.h"

namespace trireme::testing {

using Arguments = std::vector<std::string>;

// What `trireme train --data.train a.h5 ARGUMENTS` is refused with.
inline std::string refusal(Arguments arguments) {
  arguments.insert(arguments.begin(), {"--data.train", "a.h5"});
  return message_of([&] { parse_config(arguments); });
}

inline Config parsed(Arguments arguments) {
  arguments.insert(arguments.begin(), {"--data.train", "a.h5"});
  return parse_config(arguments).config;
}

// What a run that goes on would change: "optim.lr was 0.001, is 0.002; ...".
inline std::string changes(const std::string& before, const Config& now) {
  std::string text;
  for (const ChangedSetting& change : changed_settings(before, "before", now)) {
    text += (text.empty() ? "" : "; ") + change.text();
  }
  return text;
}

}  // namespace trireme::testing
