#include "trireme/io/prepare.h"

#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"

#include "io/prepare/document_stream.h"
#include "io/prepare/ordered_work.h"
#include "io/prepare/prepared_shards.h"
#include "io/prepare/text_source.h"

namespace trireme {
namespace {

// One side of the split.
struct SideTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint64_t> document_starts;
  std::uint64_t original_bytes = 0;
};
struct BatchTokens {
  SideTokens train, validation;
};

BatchTokens tokenise(const Tokenizer& tokenizer, const PieceBatch& batch) {
  BatchTokens result;
  for (const TextChunk& piece : batch) {
    SideTokens& side = piece.validation ? result.validation : result.train;
    if (piece.starts) side.document_starts.push_back(side.tokens.size());
    tokenizer.encode(piece.bytes, side.tokens,
                     piece.starts ? TextPart::kBegins : TextPart::kGoesOn);
    if (piece.ends) side.tokens.push_back(tokenizer.end_of_text());
    side.original_bytes += piece.bytes.size();
  }
  return result;
}

void check_options(const PrepareOptions& options) {
  if (options.threads < 1) {
    throw ConfigError(fmt::format("prepare with {} threads; at least 1", options.threads));
  }
  check_validation(options);
  if (options.sample_bytes == 0) throw ConfigError("a tokenizer's sample of 0 bytes");
  if (options.output.empty()) throw ConfigError("prepare needs an output folder");
}

TokenizerPtr choose_tokenizer(const PrepareOptions& options, TextSource& source) {
  const TokenizerChoice& choice = options.tokenizer;
  if (choice.kind == TokenizerChoice::Kind::kByte) return make_byte_tokenizer();
  if (choice.kind == TokenizerChoice::Kind::kLoad) {
    return load_tokenizer(choice.path, choice.end_of_text);
  }
  const bool has_tail = options.validation.rule == ValidationSplit::Rule::kTail;
  const std::string sample =
      source.sample(options.sample_bytes, has_tail ? options.validation.bytes : 0, options.seed);
  if (sample.find_first_not_of('\n') == std::string::npos) {
    throw DataError(fmt::format("there is no text in {}", fmt::join(options.inputs, ", ")));
  }
  return train_sentencepiece(sample, choice.training);
}

class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options) : options_(options), source_(options) {}

  PrepareResult run() {
    folder_.emplace(options_.output, std::vector<std::string>{kValidationShard, kTrainShard});
    report("training the tokenizer");
    tokenizer_ = choose_tokenizer(options_, source_);
    tokenizer_seconds_ = watch_.seconds();
    open_writers();
    tokenise_all();
    check_sides();
    return commit();
  }

 private:
  void open_writers() {
    const std::string source = fmt::format("{}", fmt::join(options_.inputs, ", "));
    train_ =
        std::make_unique<TokenShardWriter>(folder_->path(kTrainShard), tokenizer_, "train", source);
    if (options_.validation.rule == ValidationSplit::Rule::kNone) return;
    validation_ = std::make_unique<TokenShardWriter>(folder_->path(kValidationShard), tokenizer_,
                                                     "validation", source);
  }

  // source -> documents -> split -> pieces -> tokens -> shards
  void tokenise_all() {
    const auto append = [](TokenShardWriter& writer, const SideTokens& side) {
      writer.append(side.tokens, side.document_starts, side.original_bytes);
    };
    OrderedWork<PieceBatch, BatchTokens> ordered(
        options_.threads, [this](const PieceBatch& batch) { return tokenise(*tokenizer_, batch); },
        [&](BatchTokens&& batch) {
          append(*train_, batch.train);
          if (validation_) append(*validation_, batch.validation);
          report("tokenising");
        });
    PieceMaker pieces(*tokenizer_, [&](PieceBatch&& batch) { ordered.add(std::move(batch)); });
    const auto splitter = make_splitter(options_.validation, options_.seed,
                                        [&](TextChunk&& chunk) { pieces.add(std::move(chunk)); });
    DocumentCutter documents(options_.document_separator,
                             [&](TextChunk&& chunk) { splitter->add(std::move(chunk)); });
    TextChunk chunk;
    while (source_.next(chunk)) documents.add(std::move(chunk));
    splitter->finish();
    pieces.finish();
    ordered.finish();
  }

  void check_sides() const {
    const std::int64_t held_out = validation_ ? validation_->documents() : 0;
    if (train_->documents() + held_out == 0) {
      const BadRecords& bad = source_.remarks().bad_records;
      throw DataError(fmt::format("there is no text in {}{}", fmt::join(options_.inputs, ", "),
                                  bad.count == 0
                                      ? ""
                                      : fmt::format(": {} left out, the first: {}",
                                                    counted(bad.count, "bad record"), bad.first)));
    }
    if (train_->documents() == 0) {
      throw DataError(
          fmt::format("the validation split takes all of the text ({} bytes), nothing "
                      "is left to train on",
                      source_.text_bytes()));
    }
    if (validation_ && held_out == 0) {
      throw DataError(
          fmt::format("hash:{} draws none of the {} documents for validation; "
                      "tail:BYTES holds out a part of the text",
                      options_.validation.fraction, train_->documents()));
    }
  }

  PrepareResult commit() {
    report("writing");
    if (validation_) validation_->finish();
    train_->finish();
    name_shards(*folder_, validation_ != nullptr);
    PrepareResult result;
    if (validation_) result.validation = read_token_shard_info(folder_->path(kValidationShard));
    result.train = read_token_shard_info(folder_->path(kTrainShard));
    result.tokenizer = tokenizer_;
    result.tokenizer_seconds = tokenizer_seconds_;
    result.seconds = watch_.seconds();
    result.zero_bytes = source_.remarks().zero_bytes;
    result.left_out = source_.remarks().left_out;
    result.bad_records = source_.remarks().bad_records;
    return result;
  }

  void report(const char* phase) const {
    if (!options_.progress) return;
    const std::int64_t tokens =
        (train_ ? train_->tokens() : 0) + (validation_ ? validation_->tokens() : 0);
    options_.progress({phase, source_.bytes_read(), source_.bytes_total(),
                       static_cast<std::uint64_t>(tokens), "tokens", watch_.seconds()});
  }

  const PrepareOptions& options_;
  Stopwatch watch_;
  TextSource source_;
  TokenizerPtr tokenizer_;
  std::optional<SetFolder> folder_;
  std::unique_ptr<TokenShardWriter> train_, validation_;
  double tokenizer_seconds_ = 0.0;
};

}  // namespace

void check_validation(const PrepareOptions& options) {
  if (options.validation.rule == ValidationSplit::Rule::kClass) {
    throw ConfigError(
        "text is held out by --validation hash:FRACTION or tail:BYTES; class:FRACTION is for "
        "pictures (--images true)");
  }
}

PrepareResult prepare(const PrepareOptions& options) {
  check_options(options);
  return Preparation(options).run();
}

}  // namespace trireme
