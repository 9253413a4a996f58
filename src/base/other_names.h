// What other programs call our keys and values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Returns the entry of `known` that other programs call `name`, with '-' or '_', in any section:
// "--optimizer.learning-rate" is optim.lr.
std::optional<std::string> entry_of_other_name(std::string_view name,
                                               const std::vector<std::string>& known);

}  // namespace trireme
