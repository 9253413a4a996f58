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
#include "io/prepare/prepare_tokens.h"
#include "io/prepare/shard_pair.h"
#include "io/prepare/text_source.h"

namespace trireme {
namespace {

// Where begin and end of text are one token, the end of the document before is enough.
void begin_document(const Tokenizer& tokenizer, SideTokens& side) {
  side.document_starts.push_back(side.tokens.size());
  const auto begin = tokenizer.begin_of_text();
  if (begin && *begin != tokenizer.end_of_text()) side.tokens.push_back(*begin);
}

BatchTokens tokenise(const Tokenizer& tokenizer, const PieceBatch& batch) {
  BatchTokens result;
  for (const TextChunk& piece : batch) {
    SideTokens& side = piece.validation ? result.validation : result.train;
    if (piece.starts) begin_document(tokenizer, side);
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
  const auto kind = options.tokenizer.kind;
  const bool is_named =
      kind == TokenizerChoice::Kind::kLoad || kind == TokenizerChoice::Kind::kNumbers;
  if (options.tokens && !is_named) {
    throw ConfigError(
        "tokens that are made already need their tokenizer: --tokenizer PATH, or --vocabulary N "
        "--end-of-text TOKEN");
  }
  if (options.output.empty()) throw ConfigError("prepare needs an output folder");
}

TokenizerPtr choose_tokenizer(const PrepareOptions& options, TextSource& source) {
  const TokenizerChoice& choice = options.tokenizer;
  if (choice.kind == TokenizerChoice::Kind::kByte) return make_byte_tokenizer();
  if (choice.kind == TokenizerChoice::Kind::kLoad) {
    return load_tokenizer(choice.path, choice.around);
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
    shards_.emplace(options_);
    report("training the tokenizer");
    tokenizer_ = choose_tokenizer(options_, source_);
    tokenizer_seconds_ = watch_.seconds();
    shards_->open(tokenizer_);
    tokenise_all();
    shards_->check_sides(nothing(), fmt::format("{} bytes", source_.text_bytes()));
    return commit();
  }

 private:
  // source -> documents -> split -> pieces -> tokens -> shards
  void tokenise_all() {
    OrderedWork<PieceBatch, BatchTokens> ordered(
        options_.threads, [this](const PieceBatch& batch) { return tokenise(*tokenizer_, batch); },
        [&](BatchTokens&& batch) {
          shards_->append(batch);
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

  // Why there is no text.
  std::string nothing() const {
    const BadRecords& bad = source_.remarks().bad_records;
    std::string words = words_of(source_.remarks().left_out);
    if (bad.count > 0) {
      words += fmt::format("{}{} left out, the first: {}", words.empty() ? "" : ", ",
                           counted(bad.count, "bad record"), bad.first);
    }
    return fmt::format("there is no text in {}{}{}", fmt::join(options_.inputs, ", "),
                       words.empty() ? "" : ": ", words);
  }

  PrepareResult commit() {
    report("writing");
    PrepareResult result = shards_->commit();
    result.tokenizer_seconds = tokenizer_seconds_;
    result.seconds = watch_.seconds();
    result.zero_bytes = source_.remarks().zero_bytes;
    result.left_out = source_.remarks().left_out;
    result.bad_records = source_.remarks().bad_records;
    result.plain_records = source_.remarks().plain_records;
    return result;
  }

  void report(const char* phase) const {
    if (!options_.progress) return;
    const std::int64_t tokens = shards_->tokens();
    options_.progress({phase, source_.bytes_read(), source_.bytes_total(),
                       static_cast<std::uint64_t>(tokens), "tokens", watch_.seconds()});
  }

  const PrepareOptions& options_;
  Stopwatch watch_;
  TextSource source_;
  TokenizerPtr tokenizer_;
  std::optional<ShardPair> shards_;
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
  return options.tokens ? prepare_tokens(options) : Preparation(options).run();
}

}  // namespace trireme
