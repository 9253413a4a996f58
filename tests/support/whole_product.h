// A product of many factors is covered by pairs, and taken whole by tests/run.sh --full.
#pragma once

#include <cstdlib>
#include <string_view>

namespace trireme::testing {

inline bool whole_product() {
  const char* wish = std::getenv("TRIREME_TESTS");
  return wish != nullptr && std::string_view(wish) == "full";
}

}  // namespace trireme::testing
