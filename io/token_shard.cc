#include "trireme/io/token_shard.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "trireme/base/error.h"
#include "trireme/io/hdf5.h"

#include "token_shard_format.h"

namespace trireme {
namespace {

constexpr std::int64_t kVerifyElements = std::int64_t{1} << 20;

// Every count is bounded by the file before it is used.
void check_counts(const TokenShardInfo& info, const hdf5::Dataset& tokens,
                  const hdf5::Dataset& documents) {
  const auto require = [&](bool ok, const std::string& what) {
    if (!ok) throw DataError(fmt::format("{}: {}", info.path, what));
  };
  tokens.check_one_dimensional();
  documents.check_one_dimensional();
  documents.check_type(hdf5::ElementType::kU64);
  require(tokens.type() == hdf5::ElementType::kU16 || tokens.type() == hdf5::ElementType::kU32,
          fmt::format("/tokens is {}, not uint16 or uint32", hdf5::name_of(tokens.type())));
  require(info.tokens == tokens.elements(),
          fmt::format("the header promises {} tokens, the file holds {}", info.tokens,
                      tokens.elements()));
  require(info.documents == documents.elements(),
          fmt::format("the header promises {} documents, the file holds {}", info.documents,
                      documents.elements()));
  require(info.tokens > 0, "there are no tokens");
  require(info.original_bytes >= 0, "a negative number of original bytes");
  require(info.vocabulary >= 2 && info.vocabulary <= std::numeric_limits<std::int32_t>::max(),
          fmt::format("a vocabulary of {}", info.vocabulary));
  require(info.end_of_text >= 0 && info.end_of_text < info.vocabulary,
          fmt::format("end of text is token {} of a vocabulary of {}", info.end_of_text,
                      info.vocabulary));
}

}  // namespace

TokenShardInfo read_token_shard_info(const std::string& path) {
  const hdf5::File file = hdf5::File::open(path);
  if (!file.exists("/tokens") || !file.has_attribute("/", "format_version")) {
    throw DataError(path + ": not a token shard (made by `trireme prepare`)");
  }
  const std::int64_t version = file.integer_attribute("/", "format_version");
  if (version != kTokenShardVersion) {
    throw DataError(fmt::format("{}: token shard of format version {}; this program reads {}", path,
                                version, kTokenShardVersion));
  }
  TokenShardInfo info;
  info.path = path;
  info.tokens = file.integer_attribute("/", "tokens");
  info.documents = file.integer_attribute("/", "documents");
  info.original_bytes = file.integer_attribute("/", "original_bytes");
  info.vocabulary = file.integer_attribute("/", "vocabulary");
  info.end_of_text = file.integer_attribute("/", "end_of_text");
  info.tokenizer_kind = file.string_attribute("/", "tokenizer");
  info.source = file.string_attribute("/", "source");
  info.split = file.string_attribute("/", "split");
  info.checksum = file.string_attribute("/", "checksum");
  const auto model = file.dataset("/tokenizer").read<std::uint8_t>();
  info.tokenizer_model.assign(model.begin(), model.end());
  // A damaged model would decode to other text without a word.
  if (file.has_attribute("/tokenizer", "checksum") &&
      file.string_attribute("/tokenizer", "checksum") != checksum_of_model(info.tokenizer_model)) {
    throw DataError(path + ": the tokenizer inside is damaged: its checksum differs");
  }
  const hdf5::Dataset tokens = file.dataset("/tokens");
  check_counts(info, tokens, file.dataset("/documents"));
  info.token_bytes = static_cast<std::int64_t>(hdf5::size_of(tokens.type()));
  info.data_offset = tokens.contiguous_offset().value_or(-1);
  return info;
}

namespace {

template <class T>
std::string checksum_of(const hdf5::Dataset& tokens, const TokenShardInfo& info) {
  const std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state(XXH64_createState(),
                                                                         XXH64_freeState);
  XXH64_reset(state.get(), 0);
  std::vector<T> values;
  for (std::int64_t at = 0; at < info.tokens; at += kVerifyElements) {
    values.resize(static_cast<std::size_t>(std::min(kVerifyElements, info.tokens - at)));
    tokens.read(at, std::span<T>(values));
    XXH64_update(state.get(), values.data(), values.size() * sizeof(T));
    const T largest = *std::max_element(values.begin(), values.end());
    if (largest >= info.vocabulary) {
      throw DataError(fmt::format("{}: token {} is outside the vocabulary of {}", info.path,
                                  largest, info.vocabulary));
    }
  }
  return checksum_text(XXH64_digest(state.get()));
}

}  // namespace

std::string checksum_text(std::uint64_t digest) {
  return fmt::format("xxh64:{:016x}", digest);
}

std::string checksum_of_model(const std::string& model) {
  return checksum_text(XXH64(model.data(), model.size(), 0));
}

void verify_token_shard(const std::string& path) {
  const TokenShardInfo info = read_token_shard_info(path);
  const hdf5::File file = hdf5::File::open(path);
  const hdf5::Dataset tokens = file.dataset("/tokens");
  const std::string checksum = info.token_bytes == 2 ? checksum_of<std::uint16_t>(tokens, info)
                                                     : checksum_of<std::uint32_t>(tokens, info);
  if (checksum != info.checksum) {
    throw DataError(
        fmt::format("{}: the tokens are damaged: their checksum is {}, the header says "
                    "{}",
                    path, checksum, info.checksum));
  }
  std::uint64_t next = 0;  // the lowest place where a document may start
  const hdf5::Dataset documents = file.dataset("/documents");
  std::vector<std::uint64_t> starts;
  for (std::int64_t at = 0; at < info.documents; at += kVerifyElements) {
    starts.resize(static_cast<std::size_t>(std::min(kVerifyElements, info.documents - at)));
    documents.read(at, std::span<std::uint64_t>(starts));
    for (const std::uint64_t start : starts) {
      if (start < next || start >= static_cast<std::uint64_t>(info.tokens)) {
        throw DataError(fmt::format("{}: /documents does not rise within the tokens", path));
      }
      next = start + 1;
    }
  }
}

}  // namespace trireme
