// A file that a long stream of values passes through on its way to where its length must be known.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "posix_file.h"

namespace trireme {

// Errors are RunFolderError with the path and the system's words. The file is gone with the object.
class SpoolFile {
 public:
  explicit SpoolFile(std::string path);
  ~SpoolFile();
  SpoolFile(const SpoolFile&) = delete;
  SpoolFile& operator=(const SpoolFile&) = delete;

  void append(std::span<const std::byte> bytes);
  std::uint64_t size() const { return written_ + buffer_.size(); }
  // Fills `bytes` from `offset` on; all of it must have been appended.
  void read(std::uint64_t offset, std::span<std::byte> bytes);

 private:
  void flush();

  PosixFile file_;
  std::uint64_t written_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace trireme
