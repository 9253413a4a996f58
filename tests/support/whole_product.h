// Tests of many factors run a pairwise cover, and the whole product under tests/run.sh --full.
#pragma once

#include <cstdlib>
#include <string_view>

namespace trireme::testing {

inline bool whole_product() {
  const char* wish = std::getenv("TRIREME_TESTS");
  return wish != nullptr && std::string_view(wish) == "full";
}

}  // namespace trireme::testing
