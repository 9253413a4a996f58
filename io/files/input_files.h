// Files that a user names as input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme {

struct InputFile {
  std::string path;  // "-": standard input
  std::uint64_t size = 0;
  bool regular = false;
};

// A sound file that does not hold what is asked for: of a folder it is left out.
class OtherFile : public DataError {
 public:
  OtherFile(const std::string& file, const std::string& words)
      : DataError(file + ": " + words), words_(words) {}
  const std::string& words() const { return words_; }  // what() without the file

 private:
  std::string words_;
};

// All throw DataError where a file cannot be read, or a link names nothing.
bool is_input_folder(const std::string& path);  // also if nothing is there
InputFile input_file(const std::string& path);
// All regular files below a folder, in alphabetical order of their paths. Links to folders are
// followed, but not to one that holds the link. Counts pipes, sockets and devices, where asked to.
std::vector<InputFile> files_below(const std::string& folder, std::int64_t* others = nullptr);

// A file that is read from its beginning. Throws DataError.
class InputStream {
 public:
  // `standard_input` is the file descriptor that "-" stands for.
  InputStream(const std::string& path, int standard_input);
  // Returns how many bytes it has read: fewer than `count` only at the end.
  std::size_t read(void* bytes, std::size_t count);
  void seek(std::int64_t offset) { file_.seek(offset); }  // of a regular file

 private:
  FileReader file_;
};

}  // namespace trireme
