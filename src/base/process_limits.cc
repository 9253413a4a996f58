#include "process_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

namespace trireme {
namespace {

// Returns RLIM_INFINITY where there is no limit.
rlim_t limit_of(decltype(RLIMIT_AS) kind) {
  rlimit limit{};
  return getrlimit(kind, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string mib_of_addresses(rlim_t bytes) {
  return fmt::format("ulimit -v allows {} MiB of addresses", bytes >> 20);
}

}  // namespace

std::string words_on_memory_limit() {
  const rlim_t bytes = limit_of(RLIMIT_AS);
  return bytes == RLIM_INFINITY ? "" : "; " + mib_of_addresses(bytes);
}

std::string words_on_thread_limits() {
  std::string words;
  if (const rlim_t most = limit_of(RLIMIT_NPROC); most != RLIM_INFINITY) {
    words += fmt::format("ulimit -u allows {} processes and threads of this user, ", most);
  }
  if (const rlim_t bytes = limit_of(RLIMIT_AS); bytes != RLIM_INFINITY) {
    words += mib_of_addresses(bytes) + ", ";
  }
  return words + "pids.max of the control group may be less";
}

}  // namespace trireme
