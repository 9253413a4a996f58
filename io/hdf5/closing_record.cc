#include "io/hdf5/closing_record.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "these files are little-endian");

constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'E', 'M', 'E', '\n'};

// The last 64 bytes of the file. Before them stands the table of data ranges.
struct Footer {
  char magic[8];
  std::uint64_t version;
  std::int64_t hdf5_bytes;       // size of the HDF5 part, where the table begins
  std::int64_t ranges;           // entries of the table, 16 bytes each
  std::uint64_t structure_hash;  // XXH3 of all bytes of the HDF5 part outside the ranges
  std::uint64_t table_hash;      // XXH3 of the table
  std::uint64_t reserved;        // 0
  std::uint64_t footer_hash;     // XXH3 of the 56 bytes before
};
static_assert(sizeof(Footer) == 64 && sizeof(ByteRange) == 16);
constexpr std::size_t kHashedFooter = sizeof(Footer) - sizeof(std::uint64_t);

[[noreturn]] void refuse_record(const PosixFile& file, const std::string& reason) {
  rethrow(file.status(), fmt::format("{}: {}", file.path(), reason));
}

// The hash of the bytes [0, end) outside the ranges, which are sorted and do not overlap.
std::uint64_t structure_hash(const PosixFile& file, const std::vector<ByteRange>& ranges,
                             std::int64_t end) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> block(std::size_t{1} << 20);
  std::int64_t at = 0;
  const auto hash_until = [&](std::int64_t stop) {
    while (at < stop) {
      const auto count =
          static_cast<std::size_t>(std::min<std::int64_t>(stop - at, std::ssize(block)));
      file.read(at, block.data(), count);
      XXH3_64bits_update(state.get(), block.data(), count);
      at += static_cast<std::int64_t>(count);
    }
  };
  for (const ByteRange& range : ranges) {
    hash_until(range.offset);
    at = range.offset + range.bytes;
  }
  hash_until(end);
  return XXH3_64bits_digest(state.get());
}

// Whether the ranges are sorted, do not overlap and end at `end` or before it.
bool in_order(const std::vector<ByteRange>& ranges, std::int64_t end) {
  std::int64_t at = 0;
  for (const ByteRange& range : ranges) {
    if (range.offset < at || range.bytes <= 0 || range.bytes > end - range.offset) return false;
    at = range.offset + range.bytes;
  }
  return at <= end;
}

// Returns nothing if the file does not end with a record.
std::optional<Footer> read_footer(const PosixFile& file) {
  const std::int64_t size = file.size();
  Footer footer{};
  if (size < static_cast<std::int64_t>(sizeof(footer))) return {};
  file.read(size - static_cast<std::int64_t>(sizeof(footer)), &footer, sizeof(footer));
  if (std::memcmp(footer.magic, kMagic, sizeof(kMagic)) != 0) return {};
  if (XXH3_64bits(&footer, kHashedFooter) != footer.footer_hash) {
    refuse_record(file, "damaged: its closing record does not match its checksum");
  }
  if (footer.version != 1) {
    refuse_record(file,
                  fmt::format("format version {} is newer than this program (1)", footer.version));
  }
  const std::int64_t rest = size - static_cast<std::int64_t>(sizeof(footer));
  if (footer.ranges < 0 || footer.hdf5_bytes < 0 || footer.hdf5_bytes > rest ||
      footer.ranges != (rest - footer.hdf5_bytes) / 16 || (rest - footer.hdf5_bytes) % 16 != 0) {
    refuse_record(file, fmt::format("damaged: {} bytes do not fit its closing record", size));
  }
  return footer;
}

}  // namespace

void append_record(PosixFile& file, std::vector<ByteRange> data) {
  std::sort(data.begin(), data.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  Footer footer{};
  std::memcpy(footer.magic, kMagic, sizeof(kMagic));
  footer.version = 1;
  footer.hdf5_bytes = file.size();
  footer.ranges = std::ssize(data);
  TRIREME_CHECK(in_order(data, footer.hdf5_bytes),
                file.path() + ": ranges of data overlap in the file");
  footer.structure_hash = structure_hash(file, data, footer.hdf5_bytes);
  const std::size_t table = data.size() * sizeof(ByteRange);
  footer.table_hash = XXH3_64bits(data.data(), table);
  footer.footer_hash = XXH3_64bits(&footer, kHashedFooter);
  file.write(footer.hdf5_bytes, data.data(), table);
  file.write(footer.hdf5_bytes + static_cast<std::int64_t>(table), &footer, sizeof(footer));
}

std::optional<std::vector<ByteRange>> check_record(const PosixFile& file) {
  const std::optional<Footer> footer = read_footer(file);
  if (!footer) return {};
  std::vector<ByteRange> ranges(static_cast<std::size_t>(footer->ranges));
  const std::size_t table = ranges.size() * sizeof(ByteRange);
  file.read(footer->hdf5_bytes, ranges.data(), table);
  if (XXH3_64bits(ranges.data(), table) != footer->table_hash ||
      !in_order(ranges, footer->hdf5_bytes)) {
    refuse_record(file, "damaged: its table of ranges does not match its checksum");
  }
  if (structure_hash(file, ranges, footer->hdf5_bytes) != footer->structure_hash) {
    refuse_record(file, "damaged: its headers do not match their checksum");
  }
  return ranges;
}

}  // namespace trireme
