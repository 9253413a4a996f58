#include "io/prepare/tar_reader.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/files/input_files.h"
#include "io/prepare/packed_data.h"

namespace trireme {
namespace {

constexpr std::size_t kPackedBuffer = std::size_t{1} << 18;
constexpr std::size_t kMostPath = 4096;  // as Linux has it

using ArchivePtr = std::unique_ptr<archive, int (*)(archive*)>;

std::string_view words_of(archive* of) {
  const char* const words = archive_error_string(of);
  return words == nullptr ? "libarchive does not say why" : words;
}

}  // namespace

// The bytes of a file, decompressed.
class TarReader::Unpacked {
 public:
  Unpacked(const std::string& path, int standard_input)
      : path_(path),
        file_(path, standard_input),
        buffer_(kPackedBuffer),
        stream_(archive_read_new(), archive_read_free) {
    archive* const stream = stream_.get();
    archive_read_support_filter_gzip(stream);
    archive_read_support_filter_bzip2(stream);
    archive_read_support_filter_xz(stream);
    archive_read_support_filter_zstd(stream);
    archive_read_support_format_raw(stream);
    archive_read_support_format_empty(stream);
    archive_entry* whole = nullptr;
    check(archive_read_open(stream, this, nullptr, read_file, nullptr));
    check(archive_read_next_header(stream, &whole));
    const bool is_plain = archive_filter_count(stream) == 1;
    const std::optional<PackedData> packed = packed_data(beginning_);
    if (is_plain && packed) refuse(*packed);
  }

  // Returns the size of the next block; 0 at the end.
  std::size_t next(const void** block) {
    std::size_t size = 0;
    la_int64_t offset = 0;
    if (!ended_) check(archive_read_data_block(stream_.get(), block, &size, &offset));
    return ended_ ? 0 : size;
  }
  bool ended() const { return ended_; }
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  static la_ssize_t read_file(archive* /*of*/, void* self, const void** block) {
    auto* const own = static_cast<Unpacked*>(self);
    try {
      const std::size_t size = own->file_.read(own->buffer_.data(), own->buffer_.size());
      if (own->bytes_read_ == 0)
        own->beginning_.assign(own->buffer_.data(), std::min<std::size_t>(size, 64));
      own->bytes_read_ += size;
      own->file_ended_ = size == 0;
      *block = own->buffer_.data();
      return static_cast<la_ssize_t>(size);
    } catch (...) {
      own->fault_ = std::current_exception();
      return ARCHIVE_FATAL;
    }
  }

  void check(int result) {
    if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
    if (result == ARCHIVE_EOF) ended_ = true;
    if (result == ARCHIVE_OK || result == ARCHIVE_EOF) return;
    if (archive_errno(stream_.get()) == ENOMEM) {
      throw DataError(fmt::format(
          "{}: its decoder needs more than 1 GiB of memory; compress it with xz -9 or less",
          path_));
    }
    if (file_ended_) {
      throw DataError(fmt::format("{}: damaged: the compressed data end too early", path_));
    }
    const std::optional<PackedData> packed = packed_data(beginning_);
    throw DataError(fmt::format("{}: damaged: the compressed data are not what {} writes ({})",
                                path_, packed ? packed->program : "its program",
                                words_of(stream_.get())));
  }

  [[noreturn]] void refuse(const PackedData& packed) const {
    throw DataError(
        packed.program.empty()
            ? fmt::format("{}: {}; unpack it, and name the folder", path_, packed.name)
            : fmt::format(
                  "{}: {}; `{} -dc FILE | trireme prepare --images - --output DIR` reads it", path_,
                  packed.name, packed.program));
  }

  std::string path_;
  InputStream file_;
  std::vector<char> buffer_;  // from the file
  std::string beginning_;
  std::uint64_t bytes_read_ = 0;
  bool file_ended_ = false, ended_ = false;
  std::exception_ptr fault_;  // which libarchive's code must not see
  ArchivePtr stream_;
};

TarReader::TarReader(const std::string& path, int standard_input)
    : path_(path),
      unpacked_(std::make_unique<Unpacked>(path, standard_input)),
      tar_(archive_read_new(), archive_read_free) {
  archive_read_support_format_tar(tar_.get());
  const int result = archive_read_open(tar_.get(), this, nullptr, pass_on, nullptr);
  throw_fault();
  if (result != ARCHIVE_OK) {
    refuse(
        "neither a folder nor a tar archive, of plain bytes or compressed with gzip, bzip2, xz or "
        "zstd");
  }
}

TarReader::~TarReader() = default;

std::ptrdiff_t TarReader::pass_on(archive* /*of*/, void* self, const void** block) {
  auto* const own = static_cast<TarReader*>(self);
  try {
    return static_cast<std::ptrdiff_t>(own->unpacked_->next(block));
  } catch (...) {
    own->fault_ = std::current_exception();
    return ARCHIVE_FATAL;
  }
}

void TarReader::throw_fault() {
  if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
}

void TarReader::refuse(const std::string& reason) const {
  throw DataError(fmt::format("{}: {}", path_, reason));
}

void TarReader::refuse_cut() const {
  refuse(fmt::format("ends too early, in {}", member_.path.empty() ? "a header" : member_.path));
}

void TarReader::check_header(int result) {
  throw_fault();
  const std::string_view words = words_of(tar_.get());
  // Names are bytes to us, whatever the locale can say.
  const bool of_names = words.find("can't be converted") != std::string_view::npos;
  if (result == ARCHIVE_OK || (result == ARCHIVE_WARN && of_names)) return;
  const std::string after = member_.path.empty() ? "the beginning" : member_.path;
  if (result == ARCHIVE_RETRY) {
    refuse(fmt::format("damaged: the header after {} does not match its checksum", after));
  }
  if (unpacked_->ended()) refuse_cut();
  refuse(fmt::format("damaged: the header after {} is none ({})", after, words));
}

bool TarReader::next(TarMember& member) {
  archive_entry* entry = nullptr;
  const int result = archive_read_next_header(tar_.get(), &entry);
  if (result == ARCHIVE_EOF) {
    // libarchive takes the end of the file for the end of the archive.
    if (archive_filter_bytes(tar_.get(), 0) == archive_read_header_position(tar_.get())) {
      refuse("ends without the mark that ends a tar archive: a part of it is missing");
    }
    // What follows is read, so that the checksums of a compressed archive are compared.
    const void* rest = nullptr;
    while (unpacked_->next(&rest) > 0) {
    }
    return false;
  }
  check_header(result);
  const char* const path = archive_entry_pathname(entry);
  member_ = {path == nullptr ? "" : path, static_cast<std::uint64_t>(archive_entry_size(entry)),
             archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr};
  if (member_.path.size() > kMostPath) {
    refuse(
        fmt::format("damaged: a path of {} bytes, of at most {}", member_.path.size(), kMostPath));
  }
  member = member_;
  return true;
}

std::vector<std::uint8_t> TarReader::contents() {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(member_.size));
  for (std::size_t have = 0; have < bytes.size();) {
    const la_ssize_t got = archive_read_data(tar_.get(), bytes.data() + have, bytes.size() - have);
    throw_fault();
    if (got <= 0) refuse_cut();
    have += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::uint64_t TarReader::bytes_read() const {
  return unpacked_->bytes_read();
}

}  // namespace trireme
