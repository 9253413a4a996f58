#include "io/shards/token_file.h"

#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/shards/token_shard_format.h"

namespace trireme {
TokenFile::TokenFile(const TokenShardInfo& info) : info_(info) {
  info_.tokenizer_model.clear();  // saves memory: there may be many open shards
  if (info_.data_offset < 0 && info_.checksum_offset < 0) return;
  file_.emplace(info_.path, O_RDONLY, ExitStatus::kData);
}

// Reads elements of a dataset that begins at `offset` in the file. The offset is -1 if the dataset
// is not contiguous.
template <class T>
void TokenFile::read_dataset(const char* name, std::int64_t offset,
                             std::optional<hdf5::Dataset>& dataset, std::int64_t begin,
                             std::span<T> values) {
  if (offset < 0) {
    const std::lock_guard lock(mutex_);
    if (!dataset) dataset = hdf5::File::open(info_.path).dataset(name);
    dataset->read(begin, values);
    return;
  }
  file_->read(offset + begin * static_cast<std::int64_t>(sizeof(T)), values.data(),
              values.size_bytes());
}

// Checks the bytes of whole blocks. `first` is the number of the first block.
void TokenFile::check_blocks(std::int64_t first, std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> expected(
      static_cast<std::size_t>(blocks_of(static_cast<std::int64_t>(bytes.size()))));
  read_dataset("/token_checksums", info_.checksum_offset, checksums_, first, std::span(expected));
  for (const std::uint64_t checksum : expected) {
    const auto block = bytes.first(std::min(bytes.size(), std::size_t{kBlockBytes}));
    if (block_checksum(block.data(), block.size()) != checksum) {
      const std::int64_t begin = first * kBlockBytes / info_.token_bytes;
      const auto count = static_cast<std::int64_t>(block.size()) / info_.token_bytes;
      throw DataError(
          fmt::format("{}: damaged: tokens {} to {} (block {}) do not match their checksum",
                      info_.path, begin, begin + count - 1, first));
    }
    bytes = bytes.subspan(block.size());
    ++first;
  }
}

// Reads tokens [begin, end) into `blocks` and checks them.
template <class T>
std::span<const T> TokenFile::read_checked(std::int64_t begin, std::int64_t end,
                                           std::vector<T>& blocks) {
  constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(T));
  const bool checked = info_.format_version >= 2;
  const std::int64_t from = checked ? begin / kBlock * kBlock : begin;
  const std::int64_t to =
      checked ? std::min(info_.tokens, (end + kBlock - 1) / kBlock * kBlock) : end;
  blocks.resize(static_cast<std::size_t>(to - from));
  read_dataset("/tokens", info_.data_offset, tokens_, from, std::span(blocks));
  if (checked) check_blocks(from / kBlock, std::as_bytes(std::span(blocks)));
  return std::span<const T>(blocks).subspan(static_cast<std::size_t>(begin - from),
                                            static_cast<std::size_t>(end - begin));
}

template <class T>
std::span<const T> TokenFile::read(std::int64_t begin, std::int64_t count, std::vector<T>& blocks) {
  TRIREME_CHECK(begin >= 0 && begin <= info_.tokens && count <= info_.tokens - begin,
                fmt::format("{}: read past the end", info_.path));
  if (count == 0) return {};
  const std::span<const T> tokens = read_checked(begin, begin + count, blocks);
  const auto largest = std::max_element(tokens.begin(), tokens.end());
  if (static_cast<std::int64_t>(*largest) >= info_.vocabulary) {
    throw DataError(fmt::format("{}: token {} is {}, outside the vocabulary of {}", info_.path,
                                begin + (largest - tokens.begin()), *largest, info_.vocabulary));
  }
  return tokens;
}

template std::span<const std::uint16_t> TokenFile::read(std::int64_t, std::int64_t,
                                                        std::vector<std::uint16_t>&);
template std::span<const std::uint32_t> TokenFile::read(std::int64_t, std::int64_t,
                                                        std::vector<std::uint32_t>&);

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> tokens) {
  const auto widen = [&]<class T>(std::vector<T> blocks) {
    const auto found = read(begin, static_cast<std::int64_t>(tokens.size()), blocks);
    std::transform(found.begin(), found.end(), tokens.begin(),
                   [](T token) { return static_cast<std::int32_t>(token); });
  };
  info_.token_bytes == 2 ? widen(std::vector<std::uint16_t>())
                         : widen(std::vector<std::uint32_t>());
}

}  // namespace trireme
