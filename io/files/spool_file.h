// A temporary file for a long stream of values, for a destination that must know its length first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/files/posix_file.h"

namespace trireme {

// Throws RunFolderError with the path and the system's message. The destructor removes the file.
class SpoolFile {
 public:
  explicit SpoolFile(std::string path);
  ~SpoolFile();
  SpoolFile(const SpoolFile&) = delete;
  SpoolFile& operator=(const SpoolFile&) = delete;

  const std::string& path() const { return file_.path(); }
  void append(std::span<const std::byte> bytes);
  // Hands to the system what was appended, so that others can read it by the path.
  void flush();
  void sync();  // the same, also for other nodes
  std::uint64_t size() const { return written_ + buffer_.size(); }
  // Fills `bytes` with the file's bytes from `offset` on, which must all have been appended.
  void read(std::uint64_t offset, std::span<std::byte> bytes);

 private:
  PosixFile file_;
  std::uint64_t written_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace trireme
