#include "io/shards/token_shard_contents.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include <fcntl.h>

#include "io/files/posix_file.h"
#include "io/shards/shard_file.h"
#include "io/shards/token_shard_format.h"

namespace trireme {
namespace {

constexpr std::size_t kCopyElements = std::size_t{1} << 20;
static_assert(kCopyElements % kBlockBytes == 0, "parts are whole blocks");

// Values of several files on their way to a dataset, in parts of kCopyElements.
template <class T, class Look>
class Copy {
 public:
  Copy(hdf5::Dataset to, Look look) : to_(std::move(to)), look_(std::move(look)) {}

  // Passes `count` values of the file through `change`, from the one at `first` on.
  template <class Change>
  void add(const std::string& path, std::uint64_t first, std::uint64_t count,
           const Change& change) {
    if (count == 0) return;
    const PosixFile file(path, O_RDONLY);
    while (count > 0) {
      const std::size_t at = values_.size();
      const std::size_t size = std::min<std::uint64_t>(count, kCopyElements - at);
      values_.resize(at + size);
      const std::span<T> added = std::span(values_).subspan(at);
      file.read(static_cast<std::int64_t>(first * sizeof(T)), added.data(), added.size_bytes());
      for (T& value : added) value = change(value);
      first += size;
      count -= size;
      if (values_.size() == kCopyElements) flush();
    }
  }
  void flush() {
    if (values_.empty()) return;
    to_.write(written_, std::span<const T>(values_));
    look_(std::as_bytes(std::span<const T>(values_)));
    written_ += std::ssize(values_);
    values_.clear();
  }

 private:
  hdf5::Dataset to_;
  Look look_;
  std::vector<T> values_;
  std::int64_t written_ = 0;
};

// Fills /token_checksums while the tokens are copied, in parts of whole blocks.
class BlockChecksums {
 public:
  explicit BlockChecksums(hdf5::Dataset to) : to_(std::move(to)) {}

  void add(std::span<const std::byte> tokens) {
    checksums_.clear();
    while (!tokens.empty()) {
      const auto block = tokens.first(std::min(tokens.size(), std::size_t{kBlockBytes}));
      checksums_.push_back(block_checksum(block.data(), block.size()));
      tokens = tokens.subspan(block.size());
    }
    to_.write(written_, std::span<const std::uint64_t>(checksums_));
    written_ += std::ssize(checksums_);
  }

 private:
  hdf5::Dataset to_;
  std::vector<std::uint64_t> checksums_;
  std::int64_t written_ = 0;
};

class ShardContentsWriter {
 public:
  ShardContentsWriter(hdf5::File& file, const TokenShardContents& contents)
      : file_(file), contents_(contents), token_bytes_(token_bytes_of(*contents.tokenizer)) {
    for (const TokenStretch& stretch : contents.stretches) {
      token_count_ += stretch.tokens;
      document_count_ += stretch.documents;
    }
  }

  void write() {
    using hdf5::ElementType;
    const auto type = token_bytes_ == 2 ? ElementType::kU16 : ElementType::kU32;
    const auto blocks = blocks_of(static_cast<std::int64_t>(token_count_) * token_bytes_);
    auto tokens = file_.create_dataset("/tokens", type, extent(token_count_));
    auto documents = file_.create_dataset("/documents", ElementType::kU64, extent(document_count_));
    BlockChecksums checksums(
        file_.create_dataset("/token_checksums", ElementType::kU64, hdf5::Extents{blocks}));
    token_bytes_ == 2 ? write_tokens<std::uint16_t>(std::move(tokens), checksums)
                      : write_tokens<std::uint32_t>(std::move(tokens), checksums);
    write_documents(std::move(documents));
    file_.set_attribute("/token_checksums", "block_bytes", kBlockBytes);
    set_text(file_, "/documents", "checksum", document_checksum_.text());
    write_tokenizer();
    write_attributes();
  }

 private:
  static hdf5::Extents extent(std::uint64_t count) {
    return hdf5::Extents{static_cast<std::int64_t>(count)};
  }

  template <class T>
  void write_tokens(hdf5::Dataset to, BlockChecksums& blocks) {
    const auto look = [&](std::span<const std::byte> bytes) {
      checksum_.add(bytes.data(), bytes.size());
      blocks.add(bytes);
    };
    Copy<T, decltype(look)> copy(std::move(to), look);
    for (const TokenStretch& stretch : contents_.stretches) {
      copy.add(stretch.tokens_path, stretch.token, stretch.tokens, [](T value) { return value; });
    }
    copy.flush();
  }

  void write_documents(hdf5::Dataset to) {
    const auto look = [&](std::span<const std::byte> bytes) {
      document_checksum_.add(bytes.data(), bytes.size());
    };
    Copy<std::uint64_t, decltype(look)> copy(std::move(to), look);
    std::uint64_t before = 0;  // tokens of the stretches before
    for (const TokenStretch& stretch : contents_.stretches) {
      copy.add(stretch.documents_path, stretch.document, stretch.documents,
               [&](std::uint64_t start) { return start - stretch.counted_from + before; });
      before += stretch.tokens;
    }
    copy.flush();
  }

  void write_tokenizer() {
    const std::string& model = contents_.tokenizer->model();
    file_.create_text("/tokenizer", model);
    set_text(file_, "/tokenizer", "checksum", checksum_of_model(model));
  }

  void write_attributes() {
    const Tokenizer& tokenizer = *contents_.tokenizer;
    file_.set_attribute("/", "format_version", kTokenShardVersion);
    file_.set_attribute("/", "tokens", static_cast<std::int64_t>(token_count_));
    file_.set_attribute("/", "documents", static_cast<std::int64_t>(document_count_));
    file_.set_attribute("/", "original_bytes", static_cast<std::int64_t>(contents_.original_bytes));
    file_.set_attribute("/", "vocabulary", std::int64_t{tokenizer.vocabulary()});
    file_.set_attribute("/", "end_of_text", std::int64_t{tokenizer.end_of_text()});
    if (const auto begin = tokenizer.begin_of_text()) {
      file_.set_attribute("/", kBeginOfText, std::int64_t{*begin});
    }
    set_text(file_, "/", "tokenizer", std::string(tokenizer.kind()));
    set_text(file_, "/", "source", contents_.source);
    set_text(file_, "/", "split", contents_.split);
    set_text(file_, "/", "checksum", checksum_.text());
  }

  hdf5::File& file_;
  const TokenShardContents& contents_;
  int token_bytes_;
  std::uint64_t token_count_ = 0, document_count_ = 0;
  RunningChecksum checksum_, document_checksum_;  // of /tokens, of /documents
};

}  // namespace

int token_bytes_of(const Tokenizer& tokenizer) {
  return tokenizer.vocabulary() <= 65536 ? 2 : 4;
}

void write_token_shard(hdf5::File& file, const TokenShardContents& contents) {
  ShardContentsWriter(file, contents).write();
}

}  // namespace trireme
