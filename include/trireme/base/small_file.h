// Files that a user wrote: settings, templates.
#pragma once

#include <string>

namespace trireme {

// Returns the text of a file of at most 16 MiB. Throws ConfigError:
// "WHAT PATH: cannot be read: why".
std::string read_small_file(const std::string& what, const std::string& path);

}  // namespace trireme
