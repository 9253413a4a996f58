// The program `trireme COMMAND`.
#pragma once

#include "cli/commands.h"

namespace trireme::cli {

// Does what the arguments after the program's name ask for, and tells a fault in one line. Returns
// the status for the process to end with; where MPI was started it does not return.
int run(const Arguments& arguments);

}  // namespace trireme::cli
