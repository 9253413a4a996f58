// Lists of paths as values of options: "PATH" or "PATH=WEIGHT", joined by commas; a backslash makes
// the next character an ordinary one. A path that exists as it is written is one, with the commas
// and = in it; otherwise the last = begins the weight. A weight that is written counts, whatever it
// is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/options.h"
#include "trireme/io/dataset.h"

namespace trireme {

// See read_value and write_value in options.h.
std::string read_value(std::string_view text, std::vector<WeightedPath>& value, const Limit& limit);
std::string write_value(const std::vector<WeightedPath>& value);
// Throws ConfigError if a path has a weight. `key`: whose value it is, as "--data".
void refuse_weights(std::string_view key, const std::vector<WeightedPath>& paths);
inline std::string value_placeholder(const std::vector<WeightedPath>&) {
  return "PATH[=WEIGHT],...";
}

}  // namespace trireme
