// Which program this is.
#pragma once

#include <string>

namespace trireme::cli {

// The version and, where it was built in a git repository, the commit: "0.1.0 1a2b3c4d5e6f-dirty".
std::string program_and_commit();

}  // namespace trireme::cli
