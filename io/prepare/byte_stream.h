// Bytes that are read from front to back: of a file, of what is packed in it, of a member of an
// archive.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "io/files/input_files.h"

namespace trireme {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Returns how many bytes it has read: fewer than `count` only at the end. Throws DataError that
  // names the stream.
  virtual std::size_t read(char* to, std::size_t count) = 0;
  // How many lines of the file end before its first byte, for messages.
  virtual std::uint64_t lines_before() const { return 0; }
};
using ByteStreamPtr = std::unique_ptr<ByteStream>;

class FileBytes final : public ByteStream {
 public:
  FileBytes(std::string path, int standard_input)
      : path_(std::move(path)), file_(path_, standard_input) {}
  // Bytes [begin, end) of a regular file.
  FileBytes(std::string path, std::uint64_t begin, std::uint64_t end)
      : path_(std::move(path)), file_(path_, -1), begin_(begin), left_(end - begin) {
    file_.seek(static_cast<std::int64_t>(begin));
  }
  std::size_t read(char* to, std::size_t count) override {
    const std::size_t size = file_.read(to, std::min<std::uint64_t>(count, left_));
    left_ -= size;
    *bytes_read_ += size;
    return size;
  }
  std::uint64_t lines_before() const override;
  const std::string& path() const { return path_; }
  std::uint64_t bytes_read() const { return *bytes_read_; }  // also while another thread reads
  // The same for who outlives the file.
  using Counter = std::shared_ptr<const std::atomic<std::uint64_t>>;
  Counter counter() const { return bytes_read_; }
  // So much of it has been read in another way.
  void passed(std::uint64_t bytes) { *bytes_read_ = bytes; }

 private:
  std::string path_;
  InputStream file_;
  std::uint64_t begin_ = 0;
  std::uint64_t left_ = std::numeric_limits<std::uint64_t>::max();
  mutable std::optional<std::uint64_t> lines_before_;  // once somebody has asked
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_read_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
};

// A stream whose first bytes, up to `most`, can be seen before they are read.
class PeekedBytes final : public ByteStream {
 public:
  PeekedBytes(ByteStreamPtr stream, std::size_t most)
      : stream_(std::move(stream)), beginning_(most, '\0') {
    beginning_.resize(stream_->read(beginning_.data(), most));
  }
  std::string_view beginning() const { return beginning_; }  // before the first read()
  std::size_t read(char* to, std::size_t count) override {
    const std::size_t size = std::min(count, beginning_.size() - at_);
    std::copy_n(beginning_.data() + at_, size, to);
    at_ += size;
    if (at_ == beginning_.size() && at_ > 0) {
      beginning_ = {};
      at_ = 0;
    }
    return size == count ? size : size + stream_->read(to + size, count - size);
  }

 private:
  ByteStreamPtr stream_;
  std::string beginning_;
  std::size_t at_ = 0;
};

}  // namespace trireme
