// Files that grow by a line at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace trireme {

class PosixFile;

// Members throw RunFolderError with the system's reason.
class LogFile {
 public:
  // Opens the file to append to it, or makes it. A link is not followed.
  explicit LogFile(const std::string& path);
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&& other) noexcept;
  ~LogFile();

  // Writes the text to the end, with a single call if the disk is not full.
  void append(std::string_view text);

 private:
  std::unique_ptr<PosixFile> file_;
};

}  // namespace trireme
