#include "archive_stream.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <lzma.h>

#include "trireme/base/error.h"

#include "packed_data.h"

namespace trireme {
namespace {

constexpr std::size_t kArchiveBuffer = std::size_t{1} << 18;
// The strongest setting of xz takes 65 MiB; more is asked for by hand.
constexpr std::uint64_t kMostDecoderBytes = std::uint64_t{1} << 30;

[[noreturn]] void refuse(const std::string& path, const PackedData& packed) {
  throw DataError(
      packed.program.empty()
          ? fmt::format("{}: {}; unpack it, and name the folder", path, packed.name)
          : fmt::format("{}: {}; `{} -dc FILE | trireme prepare --images - --output DIR` reads it",
                        path, packed.name, packed.program));
}

std::string_view words_of(lzma_ret result) {
  switch (result) {
    case LZMA_MEM_ERROR:
    case LZMA_MEMLIMIT_ERROR:
      return "its decoder needs more than 1 GiB of memory; compress it with xz -9 or less";
    case LZMA_OPTIONS_ERROR:
      return "compressed with options of xz that are not known here";
    case LZMA_BUF_ERROR:
      return "damaged: the compressed data end too early";
    default:
      return "damaged: the compressed data are not what xz writes";
  }
}

}  // namespace

struct ArchiveStream::Decoder {
  explicit Decoder(const std::string& path) {
    const lzma_ret result = lzma_stream_decoder(&stream, kMostDecoderBytes, LZMA_CONCATENATED);
    if (result != LZMA_OK) throw DataError(fmt::format("{}: {}", path, words_of(result)));
  }
  ~Decoder() { lzma_end(&stream); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  lzma_stream stream = LZMA_STREAM_INIT;
  bool ended = false;
};

ArchiveStream::ArchiveStream(const std::string& path, int standard_input)
    : path_(path), file_(path, standard_input), buffer_(kArchiveBuffer) {
  refill();
  const std::string_view begin(reinterpret_cast<const char*>(buffer_.data()), end_);
  if (const std::optional<PackedData> packed = packed_data(begin)) {
    if (packed->program != "xz") refuse(path_, *packed);
    decoder_ = std::make_unique<Decoder>(path_);
  }
}

ArchiveStream::~ArchiveStream() = default;

bool ArchiveStream::refill() {
  begin_ = 0;
  end_ = file_.read(buffer_.data(), buffer_.size());
  bytes_read_ += end_;
  return end_ > 0;
}

std::size_t ArchiveStream::read(void* bytes, std::size_t count) {
  auto* to = static_cast<std::uint8_t*>(bytes);
  if (!decoder_) {
    std::size_t size = 0;
    while (size < count && (begin_ < end_ || refill())) {
      const std::size_t part = std::min(count - size, end_ - begin_);
      std::memcpy(to + size, buffer_.data() + begin_, part);
      begin_ += part;
      size += part;
    }
    return size;
  }
  lzma_stream& stream = decoder_->stream;
  stream.next_out = to;
  stream.avail_out = count;
  while (stream.avail_out > 0 && !decoder_->ended) {
    const bool more = begin_ < end_ || refill();
    stream.next_in = buffer_.data() + begin_;
    stream.avail_in = end_ - begin_;
    const lzma_ret result = lzma_code(&stream, more ? LZMA_RUN : LZMA_FINISH);
    begin_ = end_ - stream.avail_in;
    if (result == LZMA_STREAM_END) {
      decoder_->ended = true;
    } else if (result != LZMA_OK) {
      throw DataError(fmt::format("{}: {}", path_, words_of(result)));
    }
  }
  return count - stream.avail_out;
}

}  // namespace trireme
