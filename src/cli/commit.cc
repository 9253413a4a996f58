#include "cli/commit.h"

#include "commit.inc"

namespace trireme::cli {

std::string program_version() {
  return TRIREME_VERSION;
}

std::string program_commit() {
  return TRIREME_COMMIT;
}

std::string program_and_commit() {
  return program_version() + " " + program_commit();
}

}  // namespace trireme::cli
