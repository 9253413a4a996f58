// What Git LFS has in the place of a file that was not fetched.
#pragma once

#include <string_view>

namespace trireme {

inline constexpr const char* kWordsOnLfs =
    "a pointer of Git LFS in place of the file: git lfs pull fetches it";

// Whether the first bytes of a file, at least eight, are those of such a pointer.
inline bool is_pointer_of_lfs(std::string_view beginning) {
  return beginning.starts_with("version ");
}

}  // namespace trireme
