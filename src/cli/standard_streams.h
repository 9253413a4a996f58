// Standard input, output and error of the program.
#pragma once

namespace trireme::cli {

// Call it before any file is opened. A stream that is closed is kept from being given to a file, so
// that no line is written into a checkpoint; reading and writing it fail as if it were closed
// still. A write to a pipe that nobody reads fails, too, and sends no signal (SIGPIPE is ignored;
// programs that we start get it as usual).
void guard_standard_streams();

}  // namespace trireme::cli
