#include "io/parquet/codecs.h"

#include <array>
#include <cstring>
#include <iterator>

#include <fmt/format.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

namespace trireme::parquet {
namespace {

constexpr std::size_t kSlack = 64;  // for codes of a few bytes

bool copy(std::string_view from, char* to, std::size_t size) {
  if (from.size() == size) std::memcpy(to, from.data(), size);
  return from.size() == size;
}

bool expand_snappy(std::string_view from, char* to, std::size_t size) {
  std::size_t said = 0;
  if (snappy_uncompressed_length(from.data(), from.size(), &said) != SNAPPY_OK) return false;
  return said == size && snappy_uncompress(from.data(), from.size(), to, &said) == SNAPPY_OK;
}

// One or several members.
bool expand_gzip(std::string_view from, char* to, std::size_t size) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
  stream.avail_in = static_cast<uInt>(from.size());
  stream.next_out = reinterpret_cast<Bytef*>(to);
  stream.avail_out = static_cast<uInt>(size);
  int status = inflate(&stream, Z_FINISH);
  while (status == Z_STREAM_END && stream.avail_in > 0 && inflateReset(&stream) == Z_OK) {
    status = inflate(&stream, Z_FINISH);
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END && stream.avail_out == 0;
}

bool expand_zstd(std::string_view from, char* to, std::size_t size) {
  return ZSTD_decompress(to, size, from.data(), from.size()) == size;
}

bool expand_lz4(std::string_view from, char* to, std::size_t size) {
  return LZ4_decompress_safe(from.data(), to, static_cast<int>(from.size()),
                             static_cast<int>(size)) == static_cast<int>(size);
}

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Hadoop puts the sizes of a block before it: expanded, then compressed. Old versions of Arrow left
// them out.
bool expand_old_lz4(std::string_view from, char* to, std::size_t size) {
  std::string_view rest = from;
  std::size_t at = 0;
  while (rest.size() >= 8) {
    const std::size_t expanded = big_endian(rest), packed = big_endian(rest.substr(4));
    rest.remove_prefix(8);
    if (packed > rest.size() || expanded > size - at) break;
    if (!expand_lz4(rest.substr(0, packed), to + at, expanded)) break;
    at += expanded;
    rest.remove_prefix(packed);
  }
  return (rest.empty() && at == size) || expand_lz4(from, to, size);
}

struct Codec {
  const char* name;
  std::size_t most = 0;  // bytes that a byte can become
  bool (*expand)(std::string_view from, char* to,
                 std::size_t size) = nullptr;  // null: not read
};
// Snappy: 3 bytes copy 64; deflate: 2 bits copy 258; LZ4: a byte more copies 255 more; zstd: a
// block of 4 bytes repeats one 131,072 times.
constexpr std::array<Codec, 8> kCodecs = {{{"UNCOMPRESSED", 1, copy},
                                           {"SNAPPY", 22, expand_snappy},
                                           {"GZIP", 1032, expand_gzip},
                                           {"LZO"},
                                           {"BROTLI"},
                                           {"LZ4", 255, expand_old_lz4},
                                           {"ZSTD", 32768, expand_zstd},
                                           {"LZ4_RAW", 255, expand_lz4}}};

}  // namespace

Buffer decompressed(std::int64_t codec, std::string_view from, std::size_t size,
                    const Place& place) {
  place.check(codec >= 0 && codec < std::ssize(kCodecs),
              fmt::format("a codec of number {}", codec));
  const Codec& known = kCodecs[static_cast<std::size_t>(codec)];
  if (known.expand == nullptr) {
    place.refuse(
        fmt::format("is compressed with {}, which is not read: SNAPPY, GZIP, ZSTD, LZ4 "
                    "and LZ4_RAW are",
                    known.name));
  }
  place.check(size <= from.size() * known.most + kSlack,
              fmt::format("{} bytes of {} cannot hold {}", from.size(), known.name, size));
  Buffer to(size);
  place.check(size == 0 || known.expand(from, to.bytes.get(), size),
              fmt::format("its {} data are no {} bytes", known.name, size));
  return to;
}

}  // namespace trireme::parquet
