// Files that a user names as input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct InputFile {
  std::string path;  // "-": standard input
  std::uint64_t size = 0;
  bool regular = false;
};

// Throws the DataError of an input that cannot be read; `error` is the system's number.
[[noreturn]] void unreadable(const std::string& path, int error);

bool is_input_folder(const std::string& path);  // throws DataError if nothing is there
InputFile input_file(const std::string& path);
// All regular files below a folder, in alphabetical order of their paths. Links to folders are
// followed, but not to one that holds the link.
std::vector<InputFile> files_below(const std::string& folder);

// A file that is read from its beginning. Throws DataError.
class InputStream {
 public:
  // `standard_input` is the file descriptor that "-" stands for.
  InputStream(const std::string& path, int standard_input);
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  // Returns how many bytes it has read: fewer than `count` only at the end.
  std::size_t read(void* bytes, std::size_t count);

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace trireme
