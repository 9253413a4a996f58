#include "io/prepare/tar_reader.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/io/text_kind.h"

#include "io/prepare/packed_data.h"
#include "io/prepare/unpacked_bytes.h"

namespace trireme {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;
constexpr std::size_t kMostPath = 4096;  // as Linux has it

std::string_view words_of(archive* of) {
  const char* const words = archive_error_string(of);
  return words == nullptr ? "libarchive does not say why" : words;
}

[[noreturn]] void refuse_packed(const std::string& path, const PackedData& packed) {
  throw DataError(
      packed.program.empty()
          ? fmt::format("{}: {}; unpack it, and name the folder", path, packed.name)
          : fmt::format("{}: {}; `{} -dc FILE | trireme prepare --images - --output DIR` reads it",
                        path, packed.name, packed.program));
}

}  // namespace

TarReader::TarReader(const std::string& path, int standard_input)
    : path_(path), tar_(archive_read_new(), archive_read_free) {
  auto file = std::make_unique<FileBytes>(path, standard_input);
  file_ = file.get();
  auto peeked = std::make_unique<PeekedBytes>(std::move(file), kTellingBytes);
  const std::string beginning(peeked->beginning());
  const std::optional<PackedData> packed = packed_data(beginning);
  if (packed && !can_unpack(beginning)) refuse_packed(path, *packed);
  unpacked_ = std::move(peeked);
  if (packed) unpacked_ = unpack(path, beginning, std::move(unpacked_));
  open(is_tar(beginning));
}

TarReader::TarReader(std::string name, ByteStreamPtr unpacked)
    : path_(std::move(name)),
      unpacked_(std::move(unpacked)),
      tar_(archive_read_new(), archive_read_free) {
  open(true);
}

void TarReader::open(bool looks_so) {
  buffer_.resize(kBuffer);
  archive_read_support_format_tar(tar_.get());
  const int result = archive_read_open(tar_.get(), this, nullptr, pass_on, nullptr);
  throw_fault();
  if (result != ARCHIVE_OK && looks_so) {
    refuse("damaged: the header at the beginning does not match its checksum");
  }
  if (result != ARCHIVE_OK) {
    refuse(
        "neither a folder nor a tar archive, of plain bytes or compressed with gzip, bzip2, xz or "
        "zstd");
  }
}

std::size_t TarReader::next_block() {
  block_ = ended_ ? 0 : unpacked_->read(buffer_.data(), buffer_.size());
  passed_on_ += static_cast<std::int64_t>(block_);
  ended_ = block_ == 0;
  return block_;
}

// Blocks of zeros fill an archive up. libarchive does not look at what follows its end, and would
// leave out a second archive; all is read, so that the checksums of compressed ones are compared.
void TarReader::check_rest() {
  const std::int64_t left = passed_on_ - archive_filter_bytes(tar_.get(), 0);
  std::size_t size = std::min(block_, static_cast<std::size_t>(left));
  std::string_view rest(buffer_.data() + (block_ - size), size);
  while (true) {
    if (rest.find_first_not_of('\0') != std::string_view::npos) {
      refuse(
          "bytes follow the mark that ends the tar archive, as where archives were joined: name "
          "each by itself");
    }
    size = next_block();
    if (size == 0) return;
    rest = {buffer_.data(), size};
  }
}

TarReader::~TarReader() = default;

std::ptrdiff_t TarReader::pass_on(archive* /*of*/, void* self, const void** block) {
  auto* const own = static_cast<TarReader*>(self);
  try {
    *block = own->buffer_.data();
    return static_cast<std::ptrdiff_t>(own->next_block());
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
  if (ended_) refuse_cut();
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
    check_rest();
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
  if (read(reinterpret_cast<char*>(bytes.data()), bytes.size()) < bytes.size()) refuse_cut();
  return bytes;
}

std::size_t TarReader::read(char* to, std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const la_ssize_t got = archive_read_data(tar_.get(), to + done, count - done);
    throw_fault();
    if (got < 0) refuse_cut();
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace trireme
