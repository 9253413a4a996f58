#include "io/parquet/codecs.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

namespace trireme::parquet {
namespace {

enum Codec { kUncompressed, kSnappy, kGzip, kLzo, kBrotli, kLz4, kZstd, kLz4Raw };

struct CodecFacts {
  const char* name;
  std::size_t most;  // bytes that a byte can become; 0: not read
};
// Snappy: 3 bytes copy 64; deflate: 2 bits copy 258; LZ4: a byte more copies 255 more; zstd: a
// block of 4 bytes repeats one 131,072 times.
constexpr std::array<CodecFacts, 8> kCodecs = {{{"UNCOMPRESSED", 1},
                                                {"SNAPPY", 22},
                                                {"GZIP", 1032},
                                                {"LZO", 0},
                                                {"BROTLI", 0},
                                                {"LZ4", 255},
                                                {"ZSTD", 32768},
                                                {"LZ4_RAW", 255}}};
constexpr std::size_t kSlack = 64;  // for codes of a few bytes

bool expand_snappy(std::string_view from, Buffer& to) {
  std::size_t size = 0;
  if (snappy_uncompressed_length(from.data(), from.size(), &size) != SNAPPY_OK) return false;
  return size == to.size &&
         snappy_uncompress(from.data(), from.size(), to.bytes.get(), &size) == SNAPPY_OK;
}

// One or several members.
bool expand_gzip(std::string_view from, Buffer& to) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
  stream.avail_in = static_cast<uInt>(from.size());
  stream.next_out = reinterpret_cast<Bytef*>(to.bytes.get());
  stream.avail_out = static_cast<uInt>(to.size);
  int status = inflate(&stream, Z_FINISH);
  while (status == Z_STREAM_END && stream.avail_in > 0 && inflateReset(&stream) == Z_OK) {
    status = inflate(&stream, Z_FINISH);
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END && stream.avail_out == 0;
}

bool expand_lz4_block(std::string_view from, char* to, std::size_t size) {
  return LZ4_decompress_safe(from.data(), to, static_cast<int>(from.size()),
                             static_cast<int>(size)) == static_cast<int>(size);
}

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Hadoop puts the sizes of a block before it: expanded, then compressed.
bool expand_hadoop_lz4(std::string_view from, Buffer& to) {
  std::size_t at = 0;
  while (from.size() >= 8) {
    const std::size_t size = big_endian(from), packed = big_endian(from.substr(4));
    from.remove_prefix(8);
    if (packed > from.size() || size > to.size - at) return false;
    if (!expand_lz4_block(from.substr(0, packed), to.bytes.get() + at, size)) return false;
    at += size;
    from.remove_prefix(packed);
  }
  return from.empty() && at == to.size;
}

}  // namespace

struct Decompressor::Contexts {
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> zstd{ZSTD_createDCtx(), ZSTD_freeDCtx};
};

Decompressor::Decompressor(std::int32_t codec, const Place& place) : codec_(codec) {
  const bool known = codec >= 0 && codec < static_cast<std::int32_t>(kCodecs.size());
  place.check(known, fmt::format("a codec of number {}", codec));
  const CodecFacts& facts = kCodecs[static_cast<std::size_t>(codec)];
  if (facts.most == 0) {
    place.refuse(
        fmt::format("is compressed with {}, which is not read: SNAPPY, GZIP, ZSTD, LZ4 "
                    "and LZ4_RAW are",
                    facts.name));
  }
  if (codec == kZstd) contexts_ = std::make_unique<Contexts>();
}

Decompressor::~Decompressor() = default;

Buffer Decompressor::page(std::string_view from, std::size_t size, const Place& place) {
  const CodecFacts& facts = kCodecs[static_cast<std::size_t>(codec_)];
  place.check(size <= from.size() * facts.most + kSlack,
              fmt::format("{} bytes of {} cannot hold {}", from.size(), facts.name, size));
  Buffer to(size);
  if (size == 0) return to;
  bool sound = false;
  switch (codec_) {
    case kUncompressed:
      sound = size == from.size();
      if (sound) std::memcpy(to.bytes.get(), from.data(), size);
      break;
    case kSnappy:
      sound = expand_snappy(from, to);
      break;
    case kGzip:
      sound = expand_gzip(from, to);
      break;
    case kZstd:
      sound = ZSTD_decompressDCtx(contexts_->zstd.get(), to.bytes.get(), size, from.data(),
                                  from.size()) == size;
      break;
    case kLz4:
      // Old versions of Arrow left Hadoop's sizes out.
      sound = expand_hadoop_lz4(from, to) || expand_lz4_block(from, to.bytes.get(), size);
      break;
    default:
      sound = expand_lz4_block(from, to.bytes.get(), size);
  }
  place.check(sound, fmt::format("its {} data are no {} bytes", facts.name, size));
  return to;
}

Buffer Decompressor::page(Buffer from, std::size_t size, const Place& place) {
  if (codec_ == kUncompressed && size == from.size) return from;
  return page(from.view(), size, place);
}

}  // namespace trireme::parquet
