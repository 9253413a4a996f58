// Which program this is.
#pragma once

#include <string>

namespace trireme::cli {

std::string program_version();  // "0.2.0"
// Where it was built in a git repository: "1a2b3c4d5e6f-dirty"; else empty.
std::string program_commit();
// Returns both, with a blank between them.
std::string program_and_commit();

}  // namespace trireme::cli
