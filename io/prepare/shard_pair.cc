#include "io/prepare/shard_pair.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"

#include "io/prepare/prepared_shards.h"

namespace trireme {

ShardPair::ShardPair(const PrepareOptions& options)
    : options_(options), folder_(options.output, {kValidationShard, kTrainShard}) {}

void ShardPair::open(const TokenizerPtr& tokenizer) {
  tokenizer_ = tokenizer;
  const std::string source = fmt::format("{}", fmt::join(options_.inputs, ", "));
  train_ =
      std::make_unique<TokenShardWriter>(folder_.path(kTrainShard), tokenizer, "train", source);
  if (options_.validation.rule == ValidationSplit::Rule::kNone) return;
  validation_ = std::make_unique<TokenShardWriter>(folder_.path(kValidationShard), tokenizer,
                                                   "validation", source);
}

void ShardPair::append(const BatchTokens& batch) {
  const auto append = [](TokenShardWriter& writer, const SideTokens& side) {
    writer.append(side.tokens, side.document_starts, side.original_bytes);
  };
  append(*train_, batch.train);
  if (validation_) append(*validation_, batch.validation);
}

std::int64_t ShardPair::tokens() const {
  return (train_ ? train_->tokens() : 0) + (validation_ ? validation_->tokens() : 0);
}

void ShardPair::check_sides(const std::string& nothing, const std::string& size) const {
  const std::int64_t held_out = validation_ ? validation_->documents() : 0;
  if (train_->documents() + held_out == 0) throw DataError(nothing);
  if (train_->documents() == 0) {
    throw DataError(
        fmt::format("the validation split takes all of the text ({}), nothing "
                    "is left to train on",
                    size));
  }
  if (validation_ && held_out == 0) {
    throw DataError(
        fmt::format("hash:{} draws none of the {} documents for validation; "
                    "tail:BYTES holds out a part of the text",
                    options_.validation.fraction, train_->documents()));
  }
}

PrepareResult ShardPair::commit() {
  if (validation_) validation_->finish();
  train_->finish();
  name_shards(folder_, validation_ != nullptr);
  PrepareResult result;
  if (validation_) result.validation = read_token_shard_info(folder_.path(kValidationShard));
  result.train = read_token_shard_info(folder_.path(kTrainShard));
  result.tokenizer = tokenizer_;
  return result;
}

}  // namespace trireme
