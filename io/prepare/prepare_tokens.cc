#include "io/prepare/prepare_tokens.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"

#include "io/prepare/document_stream.h"
#include "io/prepare/prepare_ranks.h"
#include "io/prepare/shard_set.h"
#include "io/prepare/token_source.h"
#include "io/tokenizers/number_tokenizer.h"

namespace trireme {
namespace {

TokenizerPtr named_tokenizer(const TokenizerChoice& choice) {
  if (choice.kind == TokenizerChoice::Kind::kNumbers) {
    const auto made = std::make_shared<NumberTokenizer>(choice.vocabulary, choice.end_token);
    made->set_begin_of_text(choice.begin_token, "--begin-of-text");
    return made;
  }
  return load_tokenizer(choice.path, choice.around);
}

// The tail is that many tokens: the splitter sees their bytes.
ValidationSplit split_of_tokens(ValidationSplit split) {
  split.bytes *= sizeof(std::int32_t);
  return split;
}

// Counts documents that do not begin with the token that should.
class Beginnings {
 public:
  explicit Beginnings(const Tokenizer& tokenizer) : begin_(tokenizer.begin_of_text()) {
    if (begin_ == tokenizer.end_of_text()) begin_.reset();
  }

  void look_at(const TextChunk& chunk) {
    is_first_ = is_first_ || chunk.starts;
    if (!begin_ || !is_first_ || chunk.bytes.empty()) return;
    std::int32_t token = 0;
    std::memcpy(&token, chunk.bytes.data(), sizeof(token));
    if (token != *begin_) ++others_;
    is_first_ = false;
  }
  std::int64_t others() const { return others_; }

 private:
  std::optional<std::int32_t> begin_;
  bool is_first_ = false;  // the next token is a document's first
  std::int64_t others_ = 0;
};

BatchTokens batch_of(const TextChunk& chunk, const Tokenizer& tokenizer) {
  BatchTokens batch;
  SideTokens& side = chunk.validation ? batch.validation : batch.train;
  if (chunk.starts) side.begin_document();
  const std::size_t before = side.tokens.size();
  side.tokens.resize(before + chunk.bytes.size() / sizeof(std::int32_t));
  std::memcpy(side.tokens.data() + before, chunk.bytes.data(), chunk.bytes.size());
  for (std::size_t i = before; i < side.tokens.size(); ++i) {
    side.original_bytes += tokenizer.bytes_of(side.tokens[i]).size();
  }
  if (chunk.ends) side.end_document(tokenizer);
  return batch;
}

// What the ranks have copied, in their order, which is that of the files.
struct Copied {
  std::vector<SpooledStretch> train, validation;
  std::uint64_t tokens = 0;
  std::int64_t without_begin = 0;
};

// Collective.
Copied gathered(PrepareRanks& ranks, const ShardSet::Stretches& mine, std::int64_t without_begin) {
  Copied all;
  const Json told = Json::array({json_of(mine.train), json_of(mine.validation), without_begin});
  for (const std::string& text : ranks.gather(told.to_cbor())) {
    const Json one = Json::from_cbor(text);
    all.train.push_back(stretch_of(one.at(0)));
    all.validation.push_back(stretch_of(one.at(1)));
    all.tokens += all.train.back().tokens + all.validation.back().tokens;
    all.without_begin += one.at(2).integer();
  }
  return all;
}

}  // namespace

PrepareResult prepare_tokens(const PrepareOptions& options, Communicator* world) {
  const Stopwatch watch;
  PrepareRanks ranks(world);
  TokenizerPtr tokenizer;
  ranks.together([&] { tokenizer = named_tokenizer(options.tokenizer); });
  TokenSource source(options, *tokenizer, ranks);
  ShardSet shards(options, ranks);
  ranks.together([&] { shards.open(tokenizer); });
  PrepareRanks::Done all_done;
  const auto report = [&](const char* phase) {
    if (!options.progress) return;
    options.progress({phase, all_done.bytes_read, source.bytes_total(), all_done.made, "tokens",
                      watch.seconds()});
  };
  Beginnings beginnings(*tokenizer);
  ranks.work_together(
      [&](const PrepareRanks::Beat& beat) {
        const auto splitter = make_splitter(split_of_tokens(options.validation), options.seed,
                                            [&](TextChunk&& chunk) {
                                              beginnings.look_at(chunk);
                                              shards.append(batch_of(chunk, *tokenizer));
                                            });
        TextChunk chunk;
        while (source.next(chunk)) {
          splitter->add(std::move(chunk));
          beat({source.bytes_read(), shards.tokens()});
        }
        splitter->finish();
        shards.flush();
      },
      [&](const PrepareRanks::Done& done) {
        all_done = done;
        report("copying");
      });
  const Copied copied = gathered(ranks, shards.take(), beginnings.others());
  ranks.together([&] { report("writing"); });
  const auto side = [](SpooledText text) { return ShardSide{text, text.begin(), text.end()}; };
  std::optional<ShardSide> held_out;
  if (options.validation.rule != ValidationSplit::Rule::kNone) {
    held_out = side(shards.validation(copied.validation));
  }
  PrepareResult result =
      shards.write(side(shards.train(copied.train)), held_out,
                   fmt::format("there are no tokens in {}", fmt::join(options.inputs, ", ")),
                   fmt::format("{} tokens", copied.tokens));
  result.seconds = watch.seconds();
  result.left_out = source.left_out();
  result.without_begin = copied.without_begin;
  return result;
}

}  // namespace trireme
