// Starts another program and waits for it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

struct Finished {
  int status = 0;      // as in a shell: 128 + N after signal N
  std::string output;  // standard output
  std::string errors;  // standard error
  bool late = false;   // it had not ended in time, and was killed with all that it had started
};

struct ProgramTerms {
  std::optional<double> seconds = {};  // how long it may take; otherwise as long as it likes
  // Whether a variable of our environment, "NAME=value", is passed on; without it all are.
  std::function<bool(std::string_view variable)> passes_on = {};
};

// Runs `command` without a shell, with `input` as its standard input. Returns nullopt if there is
// no such program in the PATH. Throws an Error of kDevice where the system cannot start it.
std::optional<Finished> run_program(const std::vector<std::string>& command,
                                    const std::string& input, const ProgramTerms& terms = {});

// Text of another program for a line of ours: its lines, joined by ";".
std::string one_line(std::string text);

}  // namespace trireme::cli
