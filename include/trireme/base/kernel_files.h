// What the kernel tells in /proc and /sys. What is not there differs from machine to machine, so
// what cannot be read tells nothing and is no fault. Files of users are read by files.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

// Returns the contents, of which these files have a few pages at most; "" where they cannot be
// read.
std::string kernel_text(const std::filesystem::path& path);

// Returns the first line of that, without its '\n'.
std::string first_line_of(const std::filesystem::path& path);

// Returns the names in a folder, sorted; none where it cannot be listed.
std::vector<std::string> kernel_names(const std::filesystem::path& folder);

}  // namespace trireme
