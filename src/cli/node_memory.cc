#include "cli/node_memory.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "cli/subprocess.h"

namespace trireme::cli {

std::optional<std::int64_t> node_memory(const Site& site) {
  if (site.memory) return site.memory;
  std::vector<std::string> command{"sinfo", "-h", "-o", "%m"};
  if (!site.partition.empty()) command.push_back("--partition=" + site.partition);
  const auto done = run_program(command, "");
  if (!done || done->status != 0) return {};
  std::optional<std::int64_t> least;
  std::istringstream lines(done->output);
  for (std::int64_t mib; lines >> mib; lines.ignore(1, '+'))
    least = std::min(mib, least.value_or(mib));
  return least;
}

}  // namespace trireme::cli
