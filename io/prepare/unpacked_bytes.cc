#include "io/prepare/unpacked_bytes.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <archive.h>
#include <fmt/format.h>
#include <zlib.h>

#include "trireme/base/error.h"

#include "io/prepare/packed_data.h"

namespace trireme {
namespace {

constexpr std::size_t kPackedBuffer = std::size_t{1} << 18;

// What is wrong with a packed stream, in the words of all decoders.
class Packed {
 public:
  Packed(std::string name, std::string program)
      : name_(std::move(name)), program_(std::move(program)) {}
  [[noreturn]] void refuse_cut() const {
    throw DataError(fmt::format("{}: damaged: the compressed data end too early", name_));
  }
  [[noreturn]] void refuse_rest() const {
    throw DataError(fmt::format("{}: damaged: bytes follow the end of the compressed data", name_));
  }
  [[noreturn]] void refuse_damage(std::string_view words) const {
    throw DataError(fmt::format("{}: damaged: the compressed data are not what {} writes ({})",
                                name_, program_, words));
  }
  [[noreturn]] void refuse_memory() const {
    throw DataError(fmt::format(
        "{}: its decoder needs more than 1 GiB of memory; compress it with xz -9 or less", name_));
  }

 private:
  std::string name_, program_;
};

// Unpacks gzip by zlib, because libarchive compares none of its checksums.
class GzipBytes final : public ByteStream {
 public:
  GzipBytes(Packed about, ByteStreamPtr packed)
      : about_(std::move(about)), packed_(std::move(packed)), buffer_(kPackedBuffer) {
    constexpr int kGzip = 16;  // added to the size of the window: with headers of gzip
    TRIREME_CHECK(inflateInit2(&decoder_, kGzip + MAX_WBITS) == Z_OK, "zlib does not start");
  }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;
  ~GzipBytes() override { inflateEnd(&decoder_); }

  std::size_t read(char* to, std::size_t count) override {
    std::size_t done = 0;
    while (done < count && !ended_) {
      const auto part = static_cast<uInt>(std::min(count - done, kMostAtOnce));
      decoder_.next_out = reinterpret_cast<Bytef*>(to + done);
      decoder_.avail_out = part;
      advance();
      done += part - decoder_.avail_out;
    }
    return done;
  }

 private:
  static constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

  void advance() {
    if (decoder_.avail_in == 0) fill();
    if (decoder_.avail_in == 0) {
      if (!between_) about_.refuse_cut();
      ended_ = true;
      return;
    }
    if (between_) {
      if (*decoder_.next_in == 0) return pass_zeros();
      if (*decoder_.next_in != 0x1f) about_.refuse_rest();
      inflateReset(&decoder_);
      between_ = false;
    }
    const int result = inflate(&decoder_, Z_NO_FLUSH);
    between_ = result == Z_STREAM_END;
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return;
    about_.refuse_damage(decoder_.msg == nullptr ? "zlib does not say why" : decoder_.msg);
  }
  // Tapes and block devices pad with zeros, to the end.
  void pass_zeros() {
    for (; decoder_.avail_in > 0; fill()) {
      for (; decoder_.avail_in > 0; --decoder_.avail_in) {
        if (*decoder_.next_in++ != 0) about_.refuse_rest();
      }
    }
    ended_ = true;
  }
  void fill() {
    decoder_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    decoder_.avail_in = static_cast<uInt>(packed_->read(buffer_.data(), buffer_.size()));
  }

  Packed about_;
  ByteStreamPtr packed_;
  std::vector<char> buffer_;
  z_stream decoder_{};
  bool between_ = false, ended_ = false;  // one stream has ended; all have
};

// The other formats, by libarchive.
class FilteredBytes final : public ByteStream {
 public:
  FilteredBytes(Packed about, ByteStreamPtr packed)
      : about_(std::move(about)),
        packed_(std::move(packed)),
        buffer_(kPackedBuffer),
        stream_(archive_read_new(), archive_read_free) {
    archive* const stream = stream_.get();
    archive_read_support_filter_bzip2(stream);
    archive_read_support_filter_xz(stream);
    archive_read_support_filter_zstd(stream);
    archive_read_support_format_raw(stream);
    archive_read_support_format_empty(stream);
    archive_entry* whole = nullptr;
    check(archive_read_open(stream, this, nullptr, pass_on, nullptr));
    check(archive_read_next_header(stream, &whole));
    // Its first bytes may be those of a format, and the rest of it missing.
    if (!ended_ && archive_filter_count(stream) == 1) about_.refuse_cut();
  }

  std::size_t read(char* to, std::size_t count) override {
    std::size_t done = 0;
    while (done < count) {
      if (block_.empty() && !next_block()) break;
      const std::size_t size = std::min(count - done, block_.size());
      std::copy_n(block_.data(), size, to + done);
      block_.remove_prefix(size);
      done += size;
    }
    return done;
  }

 private:
  bool next_block() {
    while (!ended_ && block_.empty()) {
      const void* bytes = nullptr;
      std::size_t size = 0;
      la_int64_t offset = 0;
      check(archive_read_data_block(stream_.get(), &bytes, &size, &offset));
      if (!ended_) block_ = {static_cast<const char*>(bytes), size};
    }
    return !block_.empty();
  }

  static la_ssize_t pass_on(archive* /*of*/, void* self, const void** block) {
    auto* const own = static_cast<FilteredBytes*>(self);
    try {
      const std::size_t size = own->packed_->read(own->buffer_.data(), own->buffer_.size());
      own->passed_on_ += static_cast<la_int64_t>(size);
      own->packed_ended_ = size == 0;
      if (size > 0) own->passed_ = {own->buffer_.data(), size};
      *block = own->buffer_.data();
      return static_cast<la_ssize_t>(size);
    } catch (...) {
      own->fault_ = std::current_exception();
      return ARCHIVE_FATAL;
    }
  }

  void check(int result) {
    if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
    if (result == ARCHIVE_EOF) end();
    if (result == ARCHIVE_OK || result == ARCHIVE_EOF) return;
    if (archive_errno(stream_.get()) == ENOMEM) about_.refuse_memory();
    if (packed_ended_) about_.refuse_cut();
    const char* const words = archive_error_string(stream_.get());
    about_.refuse_damage(words == nullptr ? "libarchive does not say why" : words);
  }

  // libarchive does not look at what follows, which may be zeros alone.
  void end() {
    ended_ = true;
    const la_int64_t left = passed_on_ - archive_filter_bytes(stream_.get(), -1);
    const auto size = static_cast<la_int64_t>(passed_.size());
    if (left > size) about_.refuse_rest();
    passed_.remove_prefix(static_cast<std::size_t>(size - left));
    while (!passed_.empty()) {
      if (passed_.find_first_not_of('\0') != std::string_view::npos) about_.refuse_rest();
      passed_ = {buffer_.data(), packed_->read(buffer_.data(), buffer_.size())};
    }
    if (packed_->read(buffer_.data(), 1) != 0) about_.refuse_rest();
  }

  Packed about_;
  ByteStreamPtr packed_;
  std::vector<char> buffer_;
  la_int64_t passed_on_ = 0;
  std::string_view passed_;  // at last
  bool packed_ended_ = false, ended_ = false;
  std::exception_ptr fault_;  // which libarchive's code must not see
  std::unique_ptr<archive, int (*)(archive*)> stream_;
  std::string_view block_;
};

}  // namespace

bool can_unpack(std::string_view beginning) {
  const std::optional<PackedData> packed = packed_data(beginning);
  return packed && (packed->name == "gzip data" || packed->name == "bzip2 data" ||
                    packed->name == "xz data" || packed->name == "zstd data");
}

ByteStreamPtr unpack(std::string name, std::string_view beginning, ByteStreamPtr packed) {
  const std::string program(packed_data(beginning)->program);
  Packed about(std::move(name), program);
  if (program == "gzip") return std::make_unique<GzipBytes>(std::move(about), std::move(packed));
  return std::make_unique<FilteredBytes>(std::move(about), std::move(packed));
}

}  // namespace trireme
