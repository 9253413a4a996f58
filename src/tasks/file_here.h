// The data that this host can see.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/io/dataset.h"

namespace trireme::tasks {

// Returns the first path that is a file on this host.
std::optional<std::string> file_here(const std::vector<WeightedPath>& paths);

}  // namespace trireme::tasks
