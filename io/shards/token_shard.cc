#include "trireme/io/token_shard.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/io/hdf5.h"

#include "io/shards/shard_file.h"
#include "io/shards/token_file.h"
#include "io/shards/token_shard_format.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kVerifyElements = std::int64_t{1} << 20;
// A start checks this many entries of /documents, which takes almost no time.
constexpr std::int64_t kCheckedDocuments = std::int64_t{1} << 17;

void require(const TokenShardInfo& info, bool ok, const std::string& what) {
  if (!ok) throw DataError(fmt::format("{}: {}", info.path, what));
}

// Checks every count against the file before it is used.
void check_counts(const TokenShardInfo& info, const hdf5::Dataset& tokens,
                  const hdf5::Dataset& documents) {
  tokens.check_one_dimensional();
  documents.check_one_dimensional();
  documents.check_type(hdf5::ElementType::kU64);
  require(info,
          tokens.type() == hdf5::ElementType::kU16 || tokens.type() == hdf5::ElementType::kU32,
          fmt::format("/tokens is {}, not uint16 or uint32", hdf5::name_of(tokens.type())));
  tokens.check_stored();
  documents.check_stored();
  require(info, info.tokens == tokens.elements(),
          fmt::format("the header promises {} tokens, the file holds {}", info.tokens,
                      tokens.elements()));
  require(info, info.documents == documents.elements(),
          fmt::format("the header promises {} documents, the file holds {}", info.documents,
                      documents.elements()));
  require(info, info.tokens > 0, "there are no tokens");
  require(info, info.original_bytes >= 0, "a negative number of original bytes");
  require(info, info.vocabulary >= 2 && info.vocabulary <= std::numeric_limits<std::int32_t>::max(),
          fmt::format("a vocabulary of {}", info.vocabulary));
  require(info, info.end_of_text >= 0 && info.end_of_text < info.vocabulary,
          fmt::format("end of text is token {} of a vocabulary of {}", info.end_of_text,
                      info.vocabulary));
}

void check_block_checksums(const TokenShardInfo& info, const hdf5::File& file,
                           const hdf5::Dataset& checksums) {
  checksums.check_one_dimensional();
  checksums.check_type(hdf5::ElementType::kU64);
  checksums.check_stored();
  const std::int64_t block = file.integer_attribute("/token_checksums", "block_bytes");
  require(info, block == kBlockBytes,
          fmt::format("a checksum for each {} bytes of tokens; this program reads one for each {}",
                      block, kBlockBytes));
  const std::int64_t blocks = blocks_of(info.tokens * info.token_bytes);
  require(info, checksums.elements() == blocks,
          fmt::format("{} checksums for {} blocks of tokens", checksums.elements(), blocks));
}

// Checks that documents [begin, end) start at increasing tokens. `next` is the lowest token where
// the first of them may start, and is advanced.
void check_documents(const TokenShardInfo& info, const hdf5::Dataset& documents, std::int64_t begin,
                     std::int64_t end, std::uint64_t& next, RunningChecksum* checksum = nullptr) {
  std::vector<std::uint64_t> starts;
  for (std::int64_t at = begin; at < end; at += kVerifyElements) {
    starts.resize(static_cast<std::size_t>(std::min(kVerifyElements, end - at)));
    documents.read(at, std::span<std::uint64_t>(starts));
    if (checksum) checksum->add(starts.data(), starts.size() * sizeof(std::uint64_t));
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const std::int64_t document = at + static_cast<std::int64_t>(i);
      if (document == 0 && starts[i] != 0) {
        throw DataError(fmt::format("{}: /documents is damaged: the first one starts at token {}",
                                    info.path, starts[i]));
      }
      if (starts[i] < next || starts[i] >= static_cast<std::uint64_t>(info.tokens)) {
        throw DataError(fmt::format(
            "{}: /documents is damaged: number {} starts at token {}; expected {} to {}", info.path,
            document, starts[i], next, info.tokens - 1));
      }
      next = starts[i] + 1;
    }
  }
}

void check_some_documents(const TokenShardInfo& info, const hdf5::Dataset& documents) {
  const std::int64_t count = std::min(info.documents, kCheckedDocuments);
  std::uint64_t next = 0;
  check_documents(info, documents, 0, count, next);
  if (info.documents > count) {
    check_documents(info, documents, info.documents - 1, info.documents, next);
  }
}

void read_tokenizer(TokenShardInfo& info, const hdf5::File& file) {
  info.tokenizer_kind = file.string_attribute("/", "tokenizer");
  info.tokenizer_model = file.text("/tokenizer", Tokenizer::kMaxModelBytes);
  // A damaged model would silently decode to other text.
  if (file.has_attribute("/tokenizer", "checksum") &&
      file.string_attribute("/tokenizer", "checksum") != checksum_of_model(info.tokenizer_model)) {
    throw DataError(info.path + ": the tokenizer inside is damaged: its checksum differs");
  }
}

void read_attributes(TokenShardInfo& info, const hdf5::File& file) {
  info.tokens = file.integer_attribute("/", "tokens");
  info.documents = file.integer_attribute("/", "documents");
  info.original_bytes = file.integer_attribute("/", "original_bytes");
  info.vocabulary = file.integer_attribute("/", "vocabulary");
  info.end_of_text = file.integer_attribute("/", "end_of_text");
  if (file.has_attribute("/", kBeginOfText)) {
    const std::int64_t token = file.integer_attribute("/", kBeginOfText);
    require(info, token >= 0 && token < info.vocabulary,
            fmt::format("begin of text is token {} of a vocabulary of {}", token, info.vocabulary));
    info.begin_of_text = static_cast<std::int32_t>(token);
  }
  info.source = file.string_attribute("/", "source");
  info.split = file.string_attribute("/", "split");
  info.checksum = file.string_attribute("/", "checksum");
}

std::int64_t version_of(const hdf5::File& file) {
  if (!file.exists("/tokens") || !file.has_attribute("/", "format_version")) {
    throw DataError(file.path() +
                    (file.exists("/images")
                         ? ": an image shard, not a token shard (made by `trireme prepare`)"
                         : ": not a token shard (made by `trireme prepare`)"));
  }
  const std::int64_t version = file.integer_attribute("/", "format_version");
  if (version < 1 || version > kTokenShardVersion) {
    throw DataError(fmt::format("{}: token shard of format version {}; this program reads 1 to {}",
                                file.path(), version, kTokenShardVersion));
  }
  return version;
}

template <class T>
void check_tokens(const TokenShardInfo& info) {
  TokenFile file(info);
  RunningChecksum whole;
  std::vector<T> blocks;
  for (std::int64_t at = 0; at < info.tokens; at += kVerifyElements) {
    const auto tokens = file.read(at, std::min(kVerifyElements, info.tokens - at), blocks);
    whole.add(tokens.data(), tokens.size_bytes());
  }
  require(info, whole.text() == info.checksum,
          fmt::format("the tokens are damaged: their checksum is {}, the header says {}",
                      whole.text(), info.checksum));
}

}  // namespace

std::vector<std::string> token_shard_files(const std::string& path) {
  if (!look_ahead(path, ExitStatus::kData).is_folder()) return {path};
  std::vector<std::string> files;
  const auto names = names_in(path, ExitStatus::kData);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const fs::path file = fs::path(path) / name;
    const bool hidden = name.starts_with('.');  // "._train.h5" is what macOS adds to files
    if (!hidden && file.extension() == ".h5" &&
        look_at(file.string(), ExitStatus::kData).is_file()) {
      files.push_back(file.string());
    }
  }
  if (files.empty()) throw DataError(path + ": the folder holds no shards (*.h5)");
  return files;
}

TokenShardInfo read_token_shard_info(const std::string& path) {
  const CheckedFile opened = open_checked(path);
  const hdf5::File& file = opened.file;
  TokenShardInfo info;
  info.path = path;
  info.format_version = version_of(file);
  read_attributes(info, file);
  read_tokenizer(info, file);
  const hdf5::Dataset tokens = file.dataset("/tokens");
  const hdf5::Dataset documents = file.dataset("/documents");
  check_counts(info, tokens, documents);
  info.token_bytes = static_cast<std::int64_t>(hdf5::size_of(tokens.type()));
  info.data_offset = tokens.contiguous_offset().value_or(-1);
  if (info.format_version >= 2) {
    const hdf5::Dataset checksums = file.dataset("/token_checksums");
    check_block_checksums(info, file, checksums);
    info.checksum_offset = checksums.contiguous_offset().value_or(-1);
  }
  info.has_record = opened.record.has_value();
  check_ranges(opened, kTokenShardData);
  check_some_documents(info, documents);
  return info;
}

TokenShardInfo verify_token_shard(const std::string& path) {
  TokenShardInfo info = read_token_shard_info(path);
  info.token_bytes == 2 ? check_tokens<std::uint16_t>(info) : check_tokens<std::uint32_t>(info);
  const hdf5::File file = hdf5::File::open(path);
  std::uint64_t next = 0;
  RunningChecksum starts;
  check_documents(info, file.dataset("/documents"), 0, info.documents, next, &starts);
  if (file.has_attribute("/documents", "checksum")) {
    require(info, file.string_attribute("/documents", "checksum") == starts.text(),
            "/documents is damaged: its checksum differs");
  }
  return info;
}

}  // namespace trireme
