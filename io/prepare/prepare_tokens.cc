#include "io/prepare/prepare_tokens.h"

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

#include "io/prepare/document_stream.h"
#include "io/prepare/shard_pair.h"
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

BatchTokens batch_of(const TextChunk& chunk, const Tokenizer& tokenizer) {
  BatchTokens batch;
  SideTokens& side = chunk.validation ? batch.validation : batch.train;
  side.tokens.resize(chunk.bytes.size() / sizeof(std::int32_t));
  std::memcpy(side.tokens.data(), chunk.bytes.data(), chunk.bytes.size());
  for (const std::int32_t token : side.tokens)
    side.original_bytes += tokenizer.bytes_of(token).size();
  if (chunk.starts) side.document_starts.push_back(0);
  if (chunk.ends) side.tokens.push_back(tokenizer.end_of_text());
  return batch;
}

}  // namespace

PrepareResult prepare_tokens(const PrepareOptions& options) {
  const Stopwatch watch;
  const TokenizerPtr tokenizer = named_tokenizer(options.tokenizer);
  TokenSource source(options, *tokenizer);
  ShardPair shards(options);
  shards.open(tokenizer);
  const auto report = [&](const char* phase) {
    if (!options.progress) return;
    options.progress({phase, source.bytes_read(), source.bytes_total(),
                      static_cast<std::uint64_t>(shards.tokens()), "tokens", watch.seconds()});
  };
  const auto splitter =
      make_splitter(split_of_tokens(options.validation), options.seed,
                    [&](TextChunk&& chunk) { shards.append(batch_of(chunk, *tokenizer)); });
  TextChunk chunk;
  while (source.next(chunk)) {
    splitter->add(std::move(chunk));
    report("copying");
  }
  splitter->finish();
  shards.check_sides(fmt::format("there are no tokens in {}", fmt::join(options.inputs, ", ")),
                     fmt::format("{} tokens", shards.tokens()));
  report("writing");
  PrepareResult result = shards.commit();
  result.seconds = watch.seconds();
  result.left_out = source.left_out();
  return result;
}

}  // namespace trireme
