#include "tar_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kTarBlock = 512;
constexpr std::uint64_t kMostExtension = std::uint64_t{1} << 20;  // of a long path, a pax header
constexpr std::size_t kMostPath = 4096;                           // as Linux has it
constexpr std::uint64_t kMostMember = std::uint64_t{1} << 50;

// Where fields stand in a header.
struct Field {
  std::size_t offset, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kSum{148, 8}, kMagic{257, 5}, kPrefix{345, 155};
constexpr std::size_t kType = 156;

std::string_view text_of(const std::vector<std::uint8_t>& block, Field field) {
  const char* begin = reinterpret_cast<const char*>(block.data()) + field.offset;
  return {begin, ::strnlen(begin, field.length)};
}

// Octal digits between spaces, or, after a byte of 0x80, a number of many bytes.
std::optional<std::uint64_t> number_of(const std::vector<std::uint8_t>& block, Field field) {
  std::uint64_t number = 0;
  if (block[field.offset] == 0x80) {
    for (std::size_t i = 1; i < field.length; ++i) {
      if (number > kMostMember) return {};
      number = number << 8 | block[field.offset + i];
    }
    return number;
  }
  std::string_view digits = text_of(block, field);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') return {};
    number = number << 3 | static_cast<std::uint64_t>(digit - '0');
  }
  return number;
}

// The sum of all bytes, where the sum's own field counts as spaces.
std::uint64_t sum_of(const std::vector<std::uint8_t>& block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    sum += i >= kSum.offset && i < kSum.offset + kSum.length ? ' ' : block[i];
  }
  return sum;
}

std::uint64_t padded(std::uint64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

// What a pax header says about the next member: lines "LENGTH KEY=VALUE\n".
struct PaxHeader {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
};

bool parse_pax(std::string_view text, PaxHeader& header) {
  while (!text.empty()) {
    std::size_t length = 0, digits = 0;
    while (digits < text.size() && digits < 8 && text[digits] >= '0' && text[digits] <= '9') {
      length = 10 * length + static_cast<std::size_t>(text[digits++] - '0');
    }
    if (digits == 0 || length > text.size() || length < digits + 3 || text[digits] != ' ' ||
        text[length - 1] != '\n') {
      return false;
    }
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") header.path = std::string(value);
    if (key == "size") {
      std::uint64_t size = 0;
      for (const char digit : value) {
        if (digit < '0' || digit > '9' || size > kMostMember) return false;
        size = 10 * size + static_cast<std::uint64_t>(digit - '0');
      }
      header.size = size;
    }
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

void TarReader::refuse(const std::string& reason) const {
  throw DataError(fmt::format("{}: {}", path_, reason));
}

void TarReader::read_all(void* bytes, std::uint64_t count) {
  if (stream_.read(bytes, count) != count) {
    refuse(fmt::format("ends too early, in {}", member_.path.empty() ? "a header" : member_.path));
  }
}

void TarReader::skip(std::uint64_t count) {
  std::vector<std::uint8_t> ignored(
      static_cast<std::size_t>(std::min<std::uint64_t>(count, std::uint64_t{1} << 16)));
  while (count > 0) {
    const std::uint64_t part = std::min<std::uint64_t>(count, ignored.size());
    read_all(ignored.data(), part);
    count -= part;
  }
}

// Reads the next header. Returns false at the end of the archive.
bool TarReader::read_block() {
  block_.resize(kTarBlock);
  const std::size_t got = stream_.read(block_.data(), kTarBlock);
  const bool ends = got == kTarBlock && std::all_of(block_.begin(), block_.end(),
                                                    [](std::uint8_t byte) { return byte == 0; });
  if (first_ && !ends && (got < kTarBlock || text_of(block_, kMagic) != "ustar") &&
      !(got == kTarBlock && number_of(block_, kSum) == sum_of(block_))) {
    refuse("neither a folder nor a tar archive, of plain bytes or compressed with xz");
  }
  first_ = false;
  if (got == 0) refuse("ends without the mark that ends a tar archive: a part of it is missing");
  if (got < kTarBlock) refuse("ends too early, in a header");
  if (ends) {
    finish();
    return false;
  }
  if (number_of(block_, kSum) != sum_of(block_)) {
    refuse(fmt::format("damaged: the header after {} does not match its checksum",
                       member_.path.empty() ? "the beginning" : member_.path));
  }
  return true;
}

// What follows the end is read, so that the checksums of a compressed archive are compared.
void TarReader::finish() {
  std::vector<std::uint8_t> rest(std::size_t{1} << 16);
  while (stream_.read(rest.data(), rest.size()) > 0) {
  }
}

// The contents of a header that extends the next one.
std::string TarReader::extension(std::uint64_t size) {
  if (size > kMostExtension) refuse(fmt::format("damaged: a header of {} bytes", size));
  std::string text(padded(size), '\0');
  read_all(text.data(), text.size());
  text.resize(size);
  return text;
}

bool TarReader::next(TarMember& member) {
  skip(left_);
  left_ = 0;
  PaxHeader pax;
  while (read_block()) {
    const std::optional<std::uint64_t> size = number_of(block_, kSize);
    if (!size || *size > kMostMember) refuse("damaged: a header whose size is no number");
    const auto type = static_cast<char>(block_[kType]);
    if (type == 'x' || type == 'L') {
      const std::string text = extension(*size);
      if (type == 'L') {
        pax.path = text.substr(0, text.find('\0'));
      } else if (!parse_pax(text, pax)) {
        refuse("damaged: a pax header that is none");
      }
      continue;
    }
    if (type == 'g' || type == 'K') {  // of all members; of a link
      extension(*size);
      continue;
    }
    member_.regular = type == '0' || type == '\0' || type == '7';
    member_.size = pax.size.value_or(*size);
    if (member_.size > kMostMember) refuse("damaged: a member whose size no file has");
    std::string path(text_of(block_, kName));
    // In GNU's format other fields stand where the prefix is.
    const bool posix = text_of(block_, kMagic) == "ustar" && block_[kMagic.offset + 5] == 0;
    if (const std::string_view prefix = text_of(block_, kPrefix); posix && !prefix.empty()) {
      path = fmt::format("{}/{}", prefix, path);
    }
    member_.path = pax.path.value_or(path);
    if (member_.path.size() > kMostPath) {
      refuse(fmt::format("damaged: a path of {} bytes, of at most {}", member_.path.size(),
                         kMostPath));
    }
    // Links have a size, but no contents.
    const bool has_contents = member_.regular || (type != '1' && type != '2' && type != '5');
    left_ = has_contents ? padded(member_.size) : 0;
    member = member_;
    return true;
  }
  return false;
}

std::vector<std::uint8_t> TarReader::contents() {
  TRIREME_CHECK(left_ == padded(member_.size), "a member of an archive is read twice");
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(member_.size));
  read_all(bytes.data(), bytes.size());
  left_ -= member_.size;
  return bytes;
}

}  // namespace trireme
