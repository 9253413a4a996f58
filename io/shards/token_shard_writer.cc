#include <functional>
#include <optional>

#include "trireme/io/hdf5.h"
#include "trireme/io/token_shard.h"

#include "io/files/spool_file.h"
#include "io/shards/shard_file.h"
#include "io/shards/token_shard_format.h"

namespace trireme {
namespace {

constexpr std::size_t kCopyElements = std::size_t{1} << 20;

// Copies the spooled values into a dataset, and passes each part to `look`.
template <class T, class Look>
void copy(SpoolFile& from, hdf5::Dataset to, const Look& look) {
  std::vector<T> values;
  const std::uint64_t count = from.size() / sizeof(T);
  for (std::uint64_t at = 0; at < count; at += kCopyElements) {
    values.resize(std::min<std::uint64_t>(kCopyElements, count - at));
    from.read(at * sizeof(T), std::as_writable_bytes(std::span(values)));
    to.write(static_cast<std::int64_t>(at), std::span<const T>(values));
    look(std::as_bytes(std::span<const T>(values)));
  }
}

// Fills /token_checksums while the tokens are copied, in parts of whole blocks.
class BlockChecksums {
 public:
  explicit BlockChecksums(hdf5::Dataset to) : to_(std::move(to)) {}

  void operator()(std::span<const std::byte> tokens) {
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
static_assert(kCopyElements % kBlockBytes == 0, "parts are whole blocks");

}  // namespace

// A contiguous dataset needs its length when it is created, and the length is known only at the
// end. So tokens and offsets are spooled to files of their own.
class TokenShardWriter::Impl {
 public:
  Impl(std::string path, TokenizerPtr tokenizer, std::string split, std::string source)
      : file_(std::move(path)),
        tokenizer_(std::move(tokenizer)),
        split_(std::move(split)),
        source_(std::move(source)),
        token_bytes_(tokenizer_->vocabulary() <= 65536 ? 2 : 4),
        tokens_(std::in_place, file_.path() + ".tokens.partial"),
        documents_(std::in_place, file_.path() + ".documents.partial") {}

  void append(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> document_starts,
              std::uint64_t original_bytes) {
    std::vector<std::uint64_t> starts(document_starts.begin(), document_starts.end());
    for (std::uint64_t& start : starts) start += token_count_;
    document_checksum_.add(starts.data(), starts.size() * sizeof(std::uint64_t));
    documents_->append(std::as_bytes(std::span(starts)));
    if (token_bytes_ == 2) {
      narrow_.assign(tokens.begin(), tokens.end());
      add(std::as_bytes(std::span(narrow_)));
    } else {
      add(std::as_bytes(tokens));
    }
    token_count_ += tokens.size();
    document_count_ += starts.size();
    original_bytes_ += original_bytes;
  }

  void finish() {
    file_.write([this](hdf5::File& file) { write_hdf5(file); });
    tokens_.reset();  // their space may be needed
    documents_.reset();
    file_.finish(kTokenShardData);
  }

  TokenShardInfo commit() {
    finish();
    file_.commit();
    return read_token_shard_info(file_.path());
  }

  std::uint64_t token_count() const { return token_count_; }
  std::uint64_t document_count() const { return document_count_; }

 private:
  void add(std::span<const std::byte> bytes) {
    checksum_.add(bytes.data(), bytes.size());
    tokens_->append(bytes);
  }

  void write_hdf5(hdf5::File& file) {
    using hdf5::ElementType;
    const auto extent = [](std::uint64_t count) {
      return hdf5::Extents{static_cast<std::int64_t>(count)};
    };
    const auto type = token_bytes_ == 2 ? ElementType::kU16 : ElementType::kU32;
    const auto blocks = blocks_of(static_cast<std::int64_t>(tokens_->size()));
    const auto tokens = file.create_dataset("/tokens", type, extent(token_count_));
    const auto documents =
        file.create_dataset("/documents", ElementType::kU64, extent(document_count_));
    BlockChecksums checksums(
        file.create_dataset("/token_checksums", ElementType::kU64, hdf5::Extents{blocks}));
    token_bytes_ == 2 ? copy<std::uint16_t>(*tokens_, tokens, std::ref(checksums))
                      : copy<std::uint32_t>(*tokens_, tokens, std::ref(checksums));
    copy<std::uint64_t>(*documents_, documents, [](std::span<const std::byte>) {});
    file.set_attribute("/token_checksums", "block_bytes", kBlockBytes);
    set_text(file, "/documents", "checksum", document_checksum_.text());
    const std::string& model = tokenizer_->model();
    auto stored = file.create_dataset("/tokenizer", ElementType::kU8, extent(model.size()));
    if (!model.empty()) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(model.data());
      stored.write(0, std::span(bytes, model.size()));
    }
    set_text(file, "/tokenizer", "checksum", checksum_of_model(model));
    write_attributes(file);
  }

  void write_attributes(hdf5::File& file) {
    file.set_attribute("/", "format_version", kTokenShardVersion);
    file.set_attribute("/", "tokens", static_cast<std::int64_t>(token_count_));
    file.set_attribute("/", "documents", static_cast<std::int64_t>(document_count_));
    file.set_attribute("/", "original_bytes", static_cast<std::int64_t>(original_bytes_));
    file.set_attribute("/", "vocabulary", std::int64_t{tokenizer_->vocabulary()});
    file.set_attribute("/", "end_of_text", std::int64_t{tokenizer_->end_of_text()});
    if (const auto begin = tokenizer_->begin_of_text()) {
      file.set_attribute("/", kBeginOfText, std::int64_t{*begin});
    }
    set_text(file, "/", "tokenizer", std::string(tokenizer_->kind()));
    set_text(file, "/", "source", source_);
    set_text(file, "/", "split", split_);
    set_text(file, "/", "checksum", checksum_.text());
  }

  ShardFile file_;
  TokenizerPtr tokenizer_;
  std::string split_, source_;
  int token_bytes_;
  std::optional<SpoolFile> tokens_, documents_;
  RunningChecksum checksum_, document_checksum_;  // of /tokens, of /documents
  std::vector<std::uint16_t> narrow_;
  std::uint64_t token_count_ = 0, document_count_ = 0, original_bytes_ = 0;
};

TokenShardWriter::TokenShardWriter(std::string path, TokenizerPtr tokenizer, std::string split,
                                   std::string source)
    : impl_(std::make_unique<Impl>(std::move(path), std::move(tokenizer), std::move(split),
                                   std::move(source))) {}

TokenShardWriter::~TokenShardWriter() = default;

void TokenShardWriter::append(std::span<const std::int32_t> tokens,
                              std::span<const std::uint64_t> document_starts,
                              std::uint64_t original_bytes) {
  impl_->append(tokens, document_starts, original_bytes);
}

std::int64_t TokenShardWriter::tokens() const {
  return static_cast<std::int64_t>(impl_->token_count());
}

std::int64_t TokenShardWriter::documents() const {
  return static_cast<std::int64_t>(impl_->document_count());
}

void TokenShardWriter::finish() {
  impl_->finish();
}

TokenShardInfo TokenShardWriter::commit() {
  return impl_->commit();
}

}  // namespace trireme
