#include "trireme/io/prepare.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

#include "io/prepare/document_stream.h"
#include "io/prepare/ordered_work.h"
#include "io/prepare/prepare_ranks.h"
#include "io/prepare/prepare_tokens.h"
#include "io/prepare/shard_set.h"
#include "io/prepare/text_source.h"

namespace trireme {
namespace {

// Where begin and end of text are one token, the end of the document before is enough.
void begin_document(const Tokenizer& tokenizer, SideTokens& side) {
  side.begin_document();
  const auto begin = tokenizer.begin_of_text();
  if (begin && *begin != tokenizer.end_of_text()) side.tokens.push_back(*begin);
}

// Pieces of one portion of the input.
struct PortionPieces {
  std::size_t portion;
  PieceBatch pieces;
};
struct PortionTokens {
  std::size_t portion;
  BatchTokens tokens;
};

PortionTokens tokenise(const Tokenizer& tokenizer, const PortionPieces& batch) {
  PortionTokens result{batch.portion, {}};
  for (const TextChunk& piece : batch.pieces) {
    SideTokens& side = piece.validation ? result.tokens.validation : result.tokens.train;
    if (piece.starts) begin_document(tokenizer, side);
    tokenizer.encode(piece.bytes, side.tokens,
                     piece.starts ? TextPart::kBegins : TextPart::kGoesOn);
    side.original_bytes += piece.bytes.size();
    if (piece.ends) side.end_document(tokenizer);
  }
  return result;
}

void check_options(const PrepareOptions& options) {
  if (options.threads < 1) {
    throw ConfigError(fmt::format("prepare with {} threads; at least 1", options.threads));
  }
  if (options.shards < 1 || options.shards > kMostShards) {
    throw ConfigError(
        fmt::format("prepare to {} shards; expected 1 to {}", options.shards, kMostShards));
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

void check_ranks(const PrepareOptions& options, const PrepareRanks& ranks) {
  if (ranks.alone()) return;
  if (std::ranges::find(options.inputs, "-") != options.inputs.end()) {
    throw ConfigError(
        fmt::format("standard input (-) is for one process, not for {} ranks: name "
                    "files that all of them can read",
                    ranks.size()));
  }
}

// The ranks share the portions of the input, and spool what these become. Each finds in the order
// of the portions where everything goes.
class Preparation {
 public:
  Preparation(const PrepareOptions& options, Communicator* world)
      : options_(options), ranks_(world) {}

  PrepareResult run() {
    find_inputs();
    shards_.emplace(options_, ranks_);
    ranks_.together([&] { report("training the tokenizer", {}); });
    make_tokenizer_ready();
    tokenizer_seconds_ = watch_.seconds();
    ranks_.together([&] { shards_->open(tokenizer_); });
    tokenise_all();
    const std::uint64_t text_bytes = share_results();
    std::optional<ShardSide> validation;
    const ShardSide train = divide(validation);
    ranks_.together([&] { report("writing", all_done_); });
    PrepareResult result =
        shards_->write(train, validation, nothing(), fmt::format("{} bytes", text_bytes));
    result.tokenizer_seconds = tokenizer_seconds_;
    result.seconds = watch_.seconds();
    result.zero_bytes = remarks_.zero_bytes;
    result.left_out = remarks_.left_out;
    result.bad_records = remarks_.bad_records;
    result.plain_records = remarks_.plain_records;
    return result;
  }

 private:
  // What became of a portion.
  struct Outcome {
    SpooledStretch train, validation;
    std::uint64_t text_bytes = 0;
    TextRemarks remarks;
  };

  void find_inputs() {
    const std::string found = ranks_.read_once([&]() -> std::string {
      inputs_ = look_at_inputs(options_);
      return ranks_.alone() ? "" : packed(inputs_);
    });
    if (ranks_.rank() > 0) inputs_ = unpacked_inputs(found);
    portions_ = ranks_.alone() ? std::vector{whole_of(inputs_)} : portions_of(inputs_, options_);
    readers_ = readers_of(portions_, ranks_.size());
    outcomes_.resize(portions_.size());
    if (ranks_.rank() == 0) whole_.emplace(options_, inputs_);
  }

  // One rank learns it for all; each loads one that exists.
  void make_tokenizer_ready() {
    const bool loads = options_.tokenizer.kind == TokenizerChoice::Kind::kLoad;
    const std::string learned = ranks_.read_once([&]() -> std::string {
      tokenizer_ = choose_tokenizer(options_, *whole_);
      if (ranks_.alone() || loads) return "";
      return packed(*tokenizer_);
    });
    if (ranks_.alone()) return;
    ranks_.together([&] {
      if (ranks_.rank() == 0) return;
      tokenizer_ = loads ? load_tokenizer(options_.tokenizer.path, options_.tokenizer.around)
                         : unpacked_tokenizer(learned);
    });
    whole_.reset();
  }

  // Where a tail begins is known at the end; one process can hold the tail back until then.
  ValidationSplit split() const {
    const bool later = !ranks_.alone() && options_.validation.rule == ValidationSplit::Rule::kTail;
    return later ? ValidationSplit() : options_.validation;
  }

  void tokenise_all() {
    ranks_.work_together(
        [&](const PrepareRanks::Beat& beat) {
          std::size_t open = 0;  // the portion whose tokens arrive
          const auto close = [&](std::size_t next) {
            for (; open < next; ++open) {
              if (readers_[open] == ranks_.rank()) keep(outcomes_[open]);
            }
          };
          OrderedWork<PortionPieces, PortionTokens> ordered(
              options_.threads,
              [&](const PortionPieces& batch) { return tokenise(*tokenizer_, batch); },
              [&](PortionTokens&& batch) {
                close(batch.portion);
                shards_->append(batch.tokens);
                beat({bytes_read_, shards_->tokens()});
              });
          for (std::size_t i = 0; i < portions_.size(); ++i) {
            if (readers_[i] != ranks_.rank()) continue;
            read(i, beat, [&](PieceBatch&& batch) { ordered.add({i, std::move(batch)}); });
          }
          ordered.finish();
          close(portions_.size());
          shards_->flush();
        },
        [&](const PrepareRanks::Done& done) {
          all_done_ = done;
          report("tokenising", done);
        });
  }

  void keep(Outcome& outcome) {
    const ShardSet::Stretches made = shards_->take();
    outcome.train = made.train;
    outcome.validation = made.validation;
  }

  // source -> documents -> split -> pieces, of one portion. A tail that was found meanwhile begins
  // at a byte of it.
  void read(std::size_t portion, const PrepareRanks::Beat& beat,
            const std::function<void(PieceBatch&&)>& sink, std::optional<std::uint64_t> tail = {}) {
    std::optional<TextSource> part;
    if (!whole_) part.emplace(options_, inputs_, portions_[portion], tokenizer_.get());
    TextSource& source = whole_ ? *whole_ : *part;
    PieceMaker pieces(*tokenizer_, sink, [&] { return source.file(); });
    const auto to_pieces = [&](TextChunk&& chunk) { pieces.add(std::move(chunk)); };
    const auto beginning = source.beginning_of_text(kHashedBytes);
    const auto splitter = tail ? make_splitter_at(*tail, to_pieces)
                          : beginning
                              ? make_part_splitter(split(), options_.seed, *beginning, to_pieces)
                              : make_splitter(split(), options_.seed, to_pieces);
    DocumentCutter documents(
        options_.document_separator, [&](TextChunk&& chunk) { splitter->add(std::move(chunk)); },
        source.goes_on());
    const std::uint64_t read_before = bytes_read_;
    TextChunk chunk;
    while (source.next(chunk)) {
      documents.add(std::move(chunk));
      const std::uint64_t now = read_before + source.bytes_read();
      if (now != std::exchange(bytes_read_, now)) beat({now, shards_->tokens()});
    }
    bytes_read_ = read_before + source.bytes_read();
    splitter->finish();
    pieces.finish();
    outcomes_[portion].text_bytes = source.text_bytes();
    outcomes_[portion].remarks = source.remarks();
  }

  // Tells every rank what became of each portion. Returns the bytes of text.
  std::uint64_t share_results() {
    Json mine = Json::array();
    for (std::size_t i = 0; i < portions_.size(); ++i) {
      if (readers_[i] == ranks_.rank()) mine.push_back(json_of_outcome(outcomes_[i]));
    }
    std::vector<Json> all;
    for (const std::string& text : ranks_.gather(mine.to_cbor())) {
      all.push_back(Json::from_cbor(text));
    }
    std::vector<std::size_t> taken(all.size());
    std::uint64_t text_bytes = 0;
    remarks_.left_out = inputs_.left_out;
    for (std::size_t i = 0; i < portions_.size(); ++i) {
      const auto reader = static_cast<std::size_t>(readers_[i]);
      outcomes_[i] = outcome_of(all[reader].at(taken[reader]++));
      text_bytes += outcomes_[i].text_bytes;
      add(outcomes_[i].remarks, remarks_);
    }
    return text_bytes;
  }

  static Json json_of_outcome(const Outcome& outcome) {
    const TextRemarks& said = outcome.remarks;
    return Json::array({json_of(outcome.train), json_of(outcome.validation), outcome.text_bytes,
                        json_of(said.left_out), said.zero_bytes.count, said.zero_bytes.first_in,
                        said.zero_bytes.first, said.bad_records.count, said.bad_records.first,
                        said.plain_records.count, said.plain_records.first});
  }
  static Outcome outcome_of(const Json& json) {
    Outcome outcome{
        stretch_of(json.at(0)), stretch_of(json.at(1)), json.at(2).unsigned_integer(), {}};
    TextRemarks& said = outcome.remarks;
    said.left_out = left_out_of(json.at(3));
    said.zero_bytes = {json.at(4).unsigned_integer(), json.at(5).text(),
                       json.at(6).unsigned_integer()};
    said.bad_records = {json.at(7).integer(), json.at(8).text()};
    said.plain_records = {json.at(9).integer(), json.at(10).text()};
    return outcome;
  }

  // Adds the remarks on what follows.
  static void add(const TextRemarks& next, TextRemarks& all) {
    LeftOut& left_out = all.left_out;
    if (left_out.binary == 0) left_out.first_binary = next.left_out.first_binary;
    if (left_out.lacking == 0) left_out.first_lacking = next.left_out.first_lacking;
    left_out.hidden += next.left_out.hidden;
    left_out.binary += next.left_out.binary;
    left_out.links += next.left_out.links;
    left_out.pipes += next.left_out.pipes;
    left_out.lacking += next.left_out.lacking;
    if (all.zero_bytes.count == 0) {
      all.zero_bytes = next.zero_bytes;
    } else {
      all.zero_bytes.count += next.zero_bytes.count;
    }
    if (all.bad_records.count == 0) all.bad_records.first = next.bad_records.first;
    all.bad_records.count += next.bad_records.count;
    if (all.plain_records.count == 0) all.plain_records.first = next.plain_records.first;
    all.plain_records.count += next.plain_records.count;
  }

  // The sides of the split.
  ShardSide divide(std::optional<ShardSide>& validation) {
    std::vector<SpooledStretch> train, held_out;
    for (const Outcome& outcome : outcomes_) {
      train.push_back(outcome.train);
      held_out.push_back(outcome.validation);
    }
    if (options_.validation.rule != split().rule) {
      return divide_at_tail(std::move(train), validation);
    }
    if (split().rule != ValidationSplit::Rule::kNone) {
      const SpooledText text = shards_->validation(std::move(held_out));
      validation = ShardSide{text, text.begin(), text.end()};
    }
    const SpooledText text = shards_->train(std::move(train));
    return {text, text.begin(), text.end()};
  }

  // The tail begins with the first document that begins in its first half, or in the middle of one.
  ShardSide divide_at_tail(std::vector<SpooledStretch> stretches,
                           std::optional<ShardSide>& validation) {
    SpooledText text = shards_->train(stretches);
    const std::uint64_t tail = options_.validation.bytes;
    SpooledText::Place cut = text.begin();
    if (text.bytes() > tail) {
      const std::uint64_t exact = text.bytes() - tail;
      ranks_.together([&] { cut = text.first_document_from_byte(exact); });
      if (text.bytes_before(cut) > exact + tail / 2 || cut.stretch == stretches.size()) {
        const auto [portion, before] = text.stretch_of_byte(exact);
        const auto halves = read_again(portion, exact - before);
        const auto at = stretches.erase(stretches.begin() + static_cast<std::ptrdiff_t>(portion));
        stretches.insert(at, {halves.train, halves.validation});
        text = shards_->train(std::move(stretches));
        cut = {.stretch = portion + 1};
      }
    }
    validation = ShardSide{text, cut, text.end()};
    return {text, text.begin(), cut};
  }

  // Reads a portion once more, of which the tail begins at a byte. Both halves lie in the files of
  // what is trained on.
  ShardSet::Stretches read_again(std::size_t portion, std::uint64_t byte) {
    ShardSet::Stretches halves;
    const int reader = readers_[portion];
    ranks_.work_together(
        [&](const PrepareRanks::Beat& beat) {
          if (ranks_.rank() != reader) return;
          bool cut = false;
          read(
              portion, beat,
              [&](PieceBatch&& batch) {
                PortionTokens made = tokenise(*tokenizer_, {portion, std::move(batch)});
                if (!made.tokens.train.tokens.empty()) {
                  shards_->append({std::move(made.tokens.train), {}});
                }
                if (made.tokens.validation.tokens.empty()) return;
                if (!std::exchange(cut, true)) halves.train = shards_->take().train;
                shards_->append({std::move(made.tokens.validation), {}});
              },
              byte);
          halves.validation = shards_->take().train;
          shards_->flush();
        },
        [](const PrepareRanks::Done&) {});
    const std::string told =
        ranks_.gather(Json::array({json_of(halves.train), json_of(halves.validation)}).to_cbor())
            .at(static_cast<std::size_t>(reader));
    const Json both = Json::from_cbor(told);
    return {stretch_of(both.at(0)), stretch_of(both.at(1))};
  }

  // Why there is no text.
  std::string nothing() const {
    const BadRecords& bad = remarks_.bad_records;
    std::string words = words_of(remarks_.left_out);
    if (bad.count > 0) {
      words += fmt::format("{}{} left out, the first: {}", words.empty() ? "" : ", ",
                           counted(bad.count, "bad record"), bad.first);
    }
    return fmt::format("there is no text in {}{}{}", fmt::join(options_.inputs, ", "),
                       words.empty() ? "" : ": ", words);
  }

  void report(const char* phase, const PrepareRanks::Done& done) const {
    if (!options_.progress) return;
    options_.progress(
        {phase, done.bytes_read, inputs_.bytes_total, done.made, "tokens", watch_.seconds()});
  }

  const PrepareOptions& options_;
  PrepareRanks ranks_;
  Stopwatch watch_;
  TextInputs inputs_;
  std::vector<InputPortion> portions_;
  std::vector<int> readers_;         // of each portion
  std::vector<Outcome> outcomes_;    // of each portion
  std::optional<TextSource> whole_;  // all of the input
  TokenizerPtr tokenizer_;
  std::optional<ShardSet> shards_;
  TextRemarks remarks_;
  std::uint64_t bytes_read_ = 0;  // by this rank
  PrepareRanks::Done all_done_;
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

PrepareResult prepare(const PrepareOptions& options, Communicator* world) {
  check_options(options);
  check_ranks(options, PrepareRanks(world));
  return options.tokens ? prepare_tokens(options, world) : Preparation(options, world).run();
}

}  // namespace trireme
