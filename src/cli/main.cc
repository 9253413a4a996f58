#include <csignal>

#include "trireme/base/thread.h"

#include "cli/openmp_waiting.h"
#include "cli/program.h"
#include "cli/standard_streams.h"

int main(int, char** argv) {
  trireme::cli::choose_openmp_waiting(argv);
  trireme::end_by_line_on_terminate();
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond ulimit -f fails as on a full disk
  trireme::cli::guard_standard_streams();
  trireme::cli::Arguments arguments;
  for (char** argument = argv; *argument != nullptr; ++argument) arguments.emplace_back(*argument);
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return trireme::cli::run(arguments);
}
