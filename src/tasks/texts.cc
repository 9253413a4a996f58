#include "trireme/tasks/texts.h"

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"
#include "trireme/ops/softmax_loss.h"

namespace trireme {

nn::HostMicroBatch make_host_texts(ops::Context& ctx, std::int64_t batch, std::int64_t length,
                                   bool masks_documents) {
  nn::HostMicroBatch host(ctx, batch, length);
  const Shape rows = {batch * length};
  host.add(ctx, nn::kTokens, rows, DType::kI32);
  host.add(ctx, nn::kTargets, rows, DType::kI32);
  if (masks_documents) host.add(ctx, nn::kFirstKey, rows, DType::kI32);
  return host;
}

nn::MicroBatch make_micro_batch(ops::Context& ctx, const TokenBatch& data, std::int64_t context,
                                std::size_t begin, std::int64_t micro, bool training) {
  const auto real = static_cast<std::int64_t>(
      std::min(data.samples.size() - begin, static_cast<std::size_t>(micro)));
  const nn::HostMicroBatch host = make_host_texts(ctx, micro, context, !data.first_key.empty());
  const auto take_rows = [&](const std::vector<std::int32_t>& from, std::string_view field,
                             std::int32_t rest) {
    const auto values = host.fields.find(field).span<std::int32_t>();
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin) * context;
    std::fill(std::copy(first, first + real * context, values.begin()), values.end(), rest);
  };
  take_rows(data.tokens, nn::kTokens, 0);
  take_rows(data.targets, nn::kTargets, ops::kMaskedTarget);
  if (!data.first_key.empty()) take_rows(data.first_key, nn::kFirstKey, 0);
  for (std::int64_t b = 0; b < micro; ++b) {
    host.samples.data<std::int64_t>()[b] =
        b < real ? static_cast<std::int64_t>(data.samples[begin + static_cast<std::size_t>(b)]) : 0;
  }
  const auto targets = host.fields.find(nn::kTargets).span<std::int32_t>();
  const auto count = std::count_if(targets.begin(), targets.end(),
                                   [](std::int32_t target) { return target >= 0; });
  return host.to_device(ctx, count, training);
}

void tasks::check_same_tokens(const KnownTokens& tokens, const KnownTokens& expected,
                              std::string_view remedy) {
  // Rows of a model that no token of the same tokenizer has are padding.
  const bool same_tokens = !expected.tokens.empty() && tokens.tokens == expected.tokens;
  const bool known = !expected.tokenizer.empty() || !expected.tokens.empty();
  const bool may_differ = !known || same_tokens || tokens.tokenizer == expected.tokenizer;
  const bool is_padded = expected.may_have_more && may_differ && !tokens.has_added &&
                         tokens.vocabulary < expected.vocabulary;
  if (tokens.vocabulary != expected.vocabulary && !is_padded) {
    throw DataError(fmt::format("{} has a vocabulary of {} tokens{}, {} one of {}: {}", tokens.name,
                                tokens.vocabulary,
                                tokens.has_added ? " with the special ones that it lacks" : "",
                                expected.name, expected.vocabulary, remedy));
  }
  if (!may_differ) {
    throw DataError(fmt::format("{} has another tokenizer than {}, though as many tokens: {}",
                                tokens.name, expected.name, remedy));
  }
}

void tasks::check_tokenizer(const TrainedOn& model, const Tokenizer& tokenizer,
                            const std::string& origin, std::optional<std::int32_t> given) {
  const std::int32_t vocabulary = given.value_or(tokenizer.vocabulary());
  check_same_tokens({.name = origin,
                     .vocabulary = vocabulary,
                     .tokenizer = tokenizer_checksum(tokenizer),
                     .tokens = tokens_checksum(tokenizer),
                     .has_added = vocabulary > tokenizer.vocabulary()},
                    {.name = "the model of " + model.origin,
                     .vocabulary = model.facts.vocabulary.value_or(0),
                     .tokenizer = mark_of(model.marks, kTokenizerAttribute),
                     .tokens = mark_of(model.marks, kTokensAttribute),
                     .may_have_more = true},
                    "use data of the tokenizer that the model was trained with");
}

std::vector<tasks::DataMark> tasks::marks_of_tokens(const Tokenizer& tokenizer) {
  const auto begin = tokenizer.begin_of_text();
  std::vector<DataMark> marks = {{kBeginOfTextAttribute, "begin of text of data.train",
                                  begin ? std::to_string(*begin) : kNoToken, true},
                                 {kEndOfTextAttribute, "end of text of data.train",
                                  std::to_string(tokenizer.end_of_text()), true}};
  if (std::string tokens = tokens_checksum(tokenizer); !tokens.empty()) {
    marks.push_back({kTokensAttribute, "the tokens of data.train", std::move(tokens)});
  }
  return marks;
}

std::string tasks::words_on_ends(const TrainedOn& model, const Tokenizer& tokenizer,
                                 const std::string& origin) {
  std::string words;
  for (const DataMark& own : marks_of_tokens(tokenizer)) {
    const std::string before = mark_of(model.marks, own.attribute);
    if (!own.is_told || before.empty() || before == own.value) continue;
    words += fmt::format("{}{} is {} in {}, {} in the model of {}", words.empty() ? "" : "; ",
                         own.attribute == kBeginOfTextAttribute ? "begin of text" : "end of text",
                         own.value, origin, before, model.origin);
  }
  return words;
}

std::string tokens_checksum(const Tokenizer& tokenizer) {
  std::string text;
  bool is_known = false;
  for (std::int32_t token = 0; token < tokenizer.vocabulary(); ++token) {
    const std::string_view bytes = tokenizer.bytes_of(token);
    text += fmt::format("{}\n{}", bytes.size(), bytes);
    is_known = is_known || !bytes.empty();
  }
  return is_known ? fmt::format("xxh64:{:016x}", XXH64(text.data(), text.size(), 0)) : "";
}

std::string tokenizer_checksum(const Tokenizer& tokenizer) {
  const std::string text = fmt::format("{}\n{}", tokenizer.kind(), tokenizer.model());
  return fmt::format("xxh64:{:016x}", XXH64(text.data(), text.size(), 0));
}

}  // namespace trireme
