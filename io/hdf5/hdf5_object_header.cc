// Checks object headers of HDF5's oldest format for the damage that HDF5 itself does not survive.
//
// HDF5 File Format Specification 3.0, IV.A.1.a (version 1 of the header), IV.A.2.i (data layout).
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/files/posix_file.h"
#include "io/hdf5/hdf5_internal.h"

namespace trireme::hdf5 {
namespace {

constexpr std::size_t kMessageHeader = 8;  // u16 type, u16 size, u8 flags, 3 reserved
constexpr std::uint16_t kLayout = 0x0008, kContinuation = 0x0010;
constexpr std::uint64_t kMaxBlock = std::uint64_t{1} << 20;
constexpr std::size_t kMaxBlocks = 64;

template <class T>
T value_at(std::span<const char> bytes, std::size_t at) {
  T value{};
  if (at + sizeof(value) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

struct Block {
  std::uint64_t offset, bytes;
};

// Returns nothing if the block is not completely in the file.
std::vector<char> read_block(const PosixFile& file, const Block& block) {
  const auto size = static_cast<std::uint64_t>(file.size());
  if (block.bytes > kMaxBlock || block.offset > size || block.bytes > size - block.offset)
    return {};
  std::vector<char> bytes(block.bytes);
  file.read(static_cast<std::int64_t>(block.offset), bytes.data(), bytes.size());
  return bytes;
}

// Whether a layout message describes chunks with an extent of 0.
bool has_empty_chunks(std::span<const char> layout) {
  constexpr std::uint8_t kChunked = 2;
  const auto version = value_at<std::uint8_t>(layout, 0);
  std::size_t rank_at = 1, class_at = 2, extents_at = 16;  // versions 1 and 2
  if (version >= 3) rank_at = 2, class_at = 1, extents_at = 11;
  if (version > 3 || value_at<std::uint8_t>(layout, class_at) != kChunked) return false;
  const auto rank = value_at<std::uint8_t>(layout, rank_at);
  for (std::size_t d = 0; d < rank; ++d) {
    if (value_at<std::uint32_t>(layout, extents_at + 4 * d) == 0) return true;
  }
  return false;
}

bool any_empty_chunks(const PosixFile& file, haddr_t address) {
  const std::vector<char> prefix = read_block(file, {address, 16});
  if (prefix.empty() || prefix[0] != 1) return false;  // a later format, with checksums
  std::vector<Block> blocks = {{address + 16, value_at<std::uint32_t>(prefix, 8)}};
  for (std::size_t i = 0; i < blocks.size() && i < kMaxBlocks; ++i) {
    const std::vector<char> block = read_block(file, blocks[i]);
    for (std::size_t at = 0; at + kMessageHeader <= block.size();) {
      const auto type = value_at<std::uint16_t>(block, at);
      const std::size_t size = value_at<std::uint16_t>(block, at + 2);
      at += kMessageHeader;
      if (size > block.size() - at) break;
      const std::span<const char> message(block.data() + at, size);
      if (type == kLayout && has_empty_chunks(message)) return true;
      if (type == kContinuation) {
        blocks.push_back(
            {value_at<std::uint64_t>(message, 0), value_at<std::uint64_t>(message, 8)});
      }
      at += size;
    }
  }
  return false;
}

}  // namespace

void check_chunks(const std::string& path, const std::string& name, haddr_t address) {
  if (!any_empty_chunks(PosixFile(path, O_RDONLY, ExitStatus::kData), address)) return;
  throw DataError(fmt::format("{}: {} is damaged: it has chunks of no elements", path, name));
}

}  // namespace trireme::hdf5
