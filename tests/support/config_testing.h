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

}  // namespace trireme::testing
