// The bytes of an archive, decompressed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "input_files.h"

namespace trireme {

// Reads a file that may be compressed with xz; its first bytes tell. Throws DataError if it cannot
// be read, is damaged, ends too early, or is compressed otherwise.
class ArchiveStream {
 public:
  ArchiveStream(const std::string& path, int standard_input);
  ~ArchiveStream();
  ArchiveStream(const ArchiveStream&) = delete;
  ArchiveStream& operator=(const ArchiveStream&) = delete;

  // Returns how many bytes it has read: fewer than `count` only at the end.
  std::size_t read(void* bytes, std::size_t count);
  std::uint64_t bytes_read() const { return bytes_read_; }  // of the file, compressed

 private:
  struct Decoder;
  bool refill();

  std::string path_;
  InputStream file_;
  std::vector<std::uint8_t> buffer_;  // from the file
  std::size_t begin_ = 0, end_ = 0;   // what is left in it
  std::uint64_t bytes_read_ = 0;
  std::unique_ptr<Decoder> decoder_;  // none: not compressed
};

}  // namespace trireme
