#include "cli/openmp_waiting.h"
#include "cli/program.h"

int main(int, char** argv) {
  trireme::cli::choose_openmp_waiting(argv);
  trireme::cli::Arguments arguments;
  for (char** argument = argv; *argument != nullptr; ++argument) arguments.emplace_back(*argument);
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return trireme::cli::run(arguments);
}
