#include "io/files/open_files.h"

#include <algorithm>

#include <sys/resource.h>

namespace trireme {

std::size_t shards_to_keep_open() {
  constexpr std::size_t kFewestOpen = 4, kMostOpen = 1024;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return kFewestOpen;
  return std::clamp<std::size_t>(files.rlim_cur / 8, kFewestOpen, kMostOpen);
}

}  // namespace trireme
