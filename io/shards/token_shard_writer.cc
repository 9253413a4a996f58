#include <optional>

#include "trireme/io/token_shard.h"

#include "io/shards/shard_file.h"
#include "io/shards/token_shard_contents.h"
#include "io/shards/token_shard_format.h"
#include "io/shards/token_spool.h"

namespace trireme {

// A contiguous dataset needs its length when it is created, and the length is known only at the
// end. So tokens and offsets are spooled to files of their own.
class TokenShardWriter::Impl {
 public:
  Impl(std::string path, TokenizerPtr tokenizer, std::string split, std::string source)
      : file_(std::move(path)),
        contents_{std::move(tokenizer), std::move(split), std::move(source), 0, {}},
        spool_(std::in_place, file_.path(), token_bytes_of(*contents_.tokenizer)) {}

  void append(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> document_starts,
              std::uint64_t original_bytes) {
    spool_->append(tokens, document_starts);
    contents_.original_bytes += original_bytes;
  }

  void finish() {
    spool_->flush();
    contents_.stretches = {spool_->all()};
    file_.write([this](hdf5::File& file) { write_token_shard(file, contents_); });
    spool_.reset();  // its space may be needed
    file_.finish(kTokenShardData);
  }

  TokenShardInfo commit() {
    finish();
    file_.commit();
    return read_token_shard_info(file_.path());
  }

  const TokenSpool& spool() const { return *spool_; }

 private:
  ShardFile file_;
  TokenShardContents contents_;
  std::optional<TokenSpool> spool_;
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
  return static_cast<std::int64_t>(impl_->spool().tokens());
}

std::int64_t TokenShardWriter::documents() const {
  return static_cast<std::int64_t>(impl_->spool().documents());
}

void TokenShardWriter::finish() {
  impl_->finish();
}

TokenShardInfo TokenShardWriter::commit() {
  return impl_->commit();
}

}  // namespace trireme
