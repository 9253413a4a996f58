// What Git LFS has in the place of a file that was not fetched.
#pragma once

#include <cstddef>
#include <string_view>

namespace trireme {

inline constexpr const char* kWordsOnLfs =
    "a pointer of Git LFS in place of the file: git lfs pull fetches it";

// Whether the first bytes of a file, at least eight, are those of such a pointer.
inline bool is_pointer_of_lfs(std::string_view beginning) {
  return beginning.starts_with("version ");
}

// The same where texts are expected, one of which may begin so.
inline bool is_text_of_lfs(std::string_view beginning) {
  constexpr std::size_t kMostBytes = 1024;  // as Git LFS has it
  return beginning.size() < kMostBytes &&
         beginning.starts_with("version https://git-lfs.github.com/spec/v");
}

}  // namespace trireme
