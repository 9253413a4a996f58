// Files that the user names as output: one rule for all of them (src/cli/README.md, "Output").
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace trireme {

class GoneWithSignal;
class LockedFile;

// "-", or what standard output is, is standard output. A device, a socket's or a pipe's name is
// written through, and so is an open file that a name below /dev/fd stands for; for a pipe that
// nobody reads, some seconds are waited. A plain file, which a link may name, is replaced as a
// whole by finish(), with its permissions: written beside it as NAME.partial, synced and renamed.
// Nobody else can write it meanwhile; a signal that ends the process removes it. Members throw
// RunFolderError: "PATH: cannot be written: why".
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // what is not finished leaves a plain file as it was
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  void finish();

 private:
  void write_through(std::string_view bytes);

  std::string path_;                        // as the user names it
  std::string target_;                      // the plain file
  std::unique_ptr<LockedFile> unfinished_;  // of a plain file
  std::unique_ptr<GoneWithSignal> gone_;    // as long as that is unfinished
  int descriptor_ = -1;                     // of what is written through
  std::size_t written_ = 0;                 // to the plain file
};

// Writes all of the output at once.
void write_output(const std::string& path, std::string_view text);

}  // namespace trireme
