// The program `trireme COMMAND`.
#pragma once

#include "cli/commands.h"

namespace trireme::cli {

// Runs the command that the arguments after the program's name ask for, and reports a fault in one
// line. Returns the exit status of the process; does not return if MPI was started.
int run(const Arguments& arguments);

}  // namespace trireme::cli
