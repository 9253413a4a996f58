// Starts another program and waits for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme::cli {

struct Finished {
  int status = 0;      // as in a shell: 128 + N after signal N
  std::string output;  // standard output
  std::string errors;  // standard error
};

// Runs `command` without a shell, with `input` as its standard input. Returns nullopt if there is
// no such program in the PATH. Throws an Error of kDevice where the system cannot start it.
std::optional<Finished> run_program(const std::vector<std::string>& command,
                                    const std::string& input);

}  // namespace trireme::cli
