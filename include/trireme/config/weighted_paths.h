// Lists of paths as values of options: "PATH" (weight 1) or "PATH=WEIGHT", joined by commas; a
// backslash makes the next character an ordinary one.
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
inline std::string value_placeholder(const std::vector<WeightedPath>&) {
  return "PATH[=WEIGHT],...";
}

}  // namespace trireme
