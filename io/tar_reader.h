// Tar archives, read from front to back. Paths in them are data: nothing is ever written to one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "archive_stream.h"

namespace trireme {

struct TarMember {
  std::string path;
  std::uint64_t size = 0;
  bool regular = false;  // not a folder, a link or a device
};

// Reads the formats of POSIX (ustar, pax) and GNU. Throws DataError if the archive is none, is
// damaged, or ends before its own end.
class TarReader {
 public:
  TarReader(const std::string& path, int standard_input)
      : path_(path), stream_(path, standard_input) {}

  // Goes on to the next member. Returns false after the last one.
  bool next(TarMember& member);
  // Returns the member's bytes. Called at most once for each, for a size that memory holds.
  std::vector<std::uint8_t> contents();
  std::uint64_t bytes_read() const { return stream_.bytes_read(); }

 private:
  using Block = std::vector<std::uint8_t>;
  bool read_block();
  void read_all(void* bytes, std::uint64_t count);
  void skip(std::uint64_t count);
  void finish();
  std::string extension(std::uint64_t size);
  [[noreturn]] void refuse(const std::string& reason) const;

  std::string path_;
  ArchiveStream stream_;
  TarMember member_;
  std::uint64_t left_ = 0;  // of the member's bytes, with what fills its last block
  bool first_ = true;
  Block block_;
};

}  // namespace trireme
