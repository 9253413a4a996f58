// Tar archives, read from front to back by libarchive. Paths in them are data: nothing is ever
// written to one.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "io/prepare/byte_stream.h"

struct archive;

namespace trireme {

struct TarMember {
  std::string path;
  std::uint64_t size = 0;
  bool regular = false;  // not a folder, a link or a device
};

// Reads the formats of POSIX (ustar, pax) and GNU, of plain bytes or compressed with gzip, bzip2,
// xz or zstd, which the first bytes tell. Throws DataError if the archive is none, is damaged, is
// compressed otherwise, ends before its own end, or goes on behind it.
class TarReader {
 public:
  TarReader(const std::string& path, int standard_input);
  // An archive that is unpacked already, and begins as one; `name` is for messages.
  TarReader(std::string name, ByteStreamPtr unpacked);
  ~TarReader();
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  // Goes on to the next member. Returns false after the last one.
  bool next(TarMember& member);
  // Returns the member's bytes. Called at most once for each, for a size that memory holds.
  std::vector<std::uint8_t> contents();
  // The same part by part, as a ByteStream reads.
  std::size_t read(char* to, std::size_t count);
  std::uint64_t bytes_read() const { return file_->bytes_read(); }  // compressed; of a path

 private:
  void open(bool looks_so);
  std::size_t next_block();
  void check_rest();
  static std::ptrdiff_t pass_on(archive* of, void* self, const void** block);
  void throw_fault();
  void check_header(int result);
  [[noreturn]] void refuse(const std::string& reason) const;
  [[noreturn]] void refuse_cut() const;

  std::string path_;
  const FileBytes* file_ = nullptr;
  ByteStreamPtr unpacked_;
  std::vector<char> buffer_;
  std::size_t block_ = 0;       // bytes in the buffer
  std::int64_t passed_on_ = 0;  // to libarchive
  bool ended_ = false;
  std::exception_ptr fault_;  // which libarchive's code must not see
  std::unique_ptr<archive, int (*)(archive*)> tar_;
  TarMember member_;
};

}  // namespace trireme
