#include "cli/commit.h"

#include <string_view>

#include "commit.inc"

namespace trireme::cli {

std::string program_and_commit() {
  constexpr std::string_view kCommit = TRIREME_COMMIT;
  return kCommit.empty() ? TRIREME_VERSION : TRIREME_VERSION " " TRIREME_COMMIT;
}

}  // namespace trireme::cli
