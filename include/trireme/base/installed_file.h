// Files that are installed with the program, wherever its prefix was moved to.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// Looks for one of `names`, paths like "share/trireme/jobs/step.sh", first below the folder of the
// running program and then below each folder above that one. Nothing if none of them exists.
std::optional<std::filesystem::path> find_near_program(const std::vector<std::string>& names);

}  // namespace trireme
