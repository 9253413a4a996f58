#include "trireme/tasks/masked_texts.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/ops/softmax_loss.h"

namespace trireme {
namespace {

constexpr std::int32_t kPieceEnds = -1;
// The shares of the hidden tokens that become the mask, and the mask or a random token.
constexpr float kShareOfMask = 0.8f, kShareOfMaskOrRandom = 0.9f;

}  // namespace

std::string_view SpecialTokens::name_of(std::int32_t token) const {
  for (const auto& [name, number] : names) {
    if (number == token) return name;
  }
  return {};
}

SpecialTokens special_tokens(const Tokenizer& tokenizer) {
  SpecialTokens special;
  special.vocabulary = tokenizer.vocabulary();
  special.names.assign(tokenizer.special_tokens().begin(), tokenizer.special_tokens().end());
  const auto find = [&](std::string_view text) {
    if (const auto known = tokenizer.special_token(text)) return *known;
    special.names.emplace_back(text, special.vocabulary);
    return special.vocabulary++;
  };
  special.pad = find("[PAD]");
  special.cls = find("[CLS]");
  special.sep = find("[SEP]");
  special.mask = find(kMaskText);
  return special;
}

std::int64_t masked_tokens(std::int64_t maskable, double share) {
  if (maskable < 1) return 0;
  return std::clamp<std::int64_t>(std::llround(share * static_cast<double>(maskable)), 1, maskable);
}

// What a sample is written to.
struct TextMasking::Row {
  std::span<std::int32_t> tokens;
  std::int32_t& end;
  std::span<std::int32_t> positions, targets;
};

TextMasking::TextMasking(const Tokenizer& tokenizer, const MaskingOptions& options)
    : options_(options),
      special_(special_tokens(tokenizer)),
      end_of_text_(tokenizer.end_of_text()),
      most_(masked_tokens(text_length(), options.share)),
      key_(
          philox_key(options.seed, options.training ? "data.masking" : "data.masking.evaluation")) {
  if (text_length() < 1) {
    throw ConfigError(fmt::format(
        "model.context is {}: a sample is [CLS], text and [SEP], so it has 3 tokens or more",
        options.length));
  }
  is_text_.resize(static_cast<std::size_t>(tokenizer.vocabulary()));
  for (std::int32_t token = 0; token < tokenizer.vocabulary(); ++token) {
    is_text_[static_cast<std::size_t>(token)] =
        token != end_of_text_ && !tokenizer.bytes_of(token).empty();
  }
  for (const auto& [name, token] : tokenizer.special_tokens()) {
    is_text_[static_cast<std::size_t>(token)] = false;
  }
  for (std::int32_t token = 0; token < tokenizer.vocabulary(); ++token) {
    if (is_text_[static_cast<std::size_t>(token)]) replacements_.push_back(token);
  }
  if (replacements_.empty()) {
    throw DataError("the tokenizer has no token that stands for text: nothing can be hidden");
  }
}

MaskedBatch TextMasking::batch(std::span<const std::uint64_t> samples,
                               std::span<const std::int32_t> rows) const {
  const auto text = static_cast<std::size_t>(text_length()),
             length = static_cast<std::size_t>(options_.length),
             most = static_cast<std::size_t>(most_);
  TRIREME_CHECK(rows.size() == samples.size() * text, "a row of text for each sample");
  MaskedBatch made;
  made.samples.assign(samples.begin(), samples.end());
  made.tokens.resize(samples.size() * length);
  made.ends.resize(samples.size());
  made.positions.resize(samples.size() * most);
  made.targets.resize(samples.size() * most);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Row row{std::span(made.tokens).subspan(i * length, length), made.ends[i],
                  std::span(made.positions).subspan(i * most, most),
                  std::span(made.targets).subspan(i * most, most)};
    fill(rows.subspan(i * text, text), row);
    hide(samples[i], row);
  }
  return made;
}

// Writes the sample as it is before anything is hidden.
void TextMasking::fill(std::span<const std::int32_t> text, const Row& row) const {
  // A sample that begins between two documents is one of the second, or it would be empty.
  while (options_.ends_documents && !text.empty() && text.front() == end_of_text_) {
    text = text.subspan(1);
  }
  const auto ends = [&](std::int32_t token) {
    return token == kPieceEnds || (options_.ends_documents && token == end_of_text_);
  };
  const auto piece =
      text.first(static_cast<std::size_t>(std::ranges::find_if(text, ends) - text.begin()));
  row.tokens[0] = special_.cls;
  std::ranges::copy(piece, row.tokens.begin() + 1);
  row.tokens[piece.size() + 1] = special_.sep;
  row.end = static_cast<std::int32_t>(std::ssize(piece) + kTokensAroundText);
  std::ranges::fill(row.tokens.subspan(static_cast<std::size_t>(row.end)), special_.pad);
}

void TextMasking::hide(std::uint64_t sample, const Row& row) const {
  struct Candidate {
    std::uint32_t order, kind, token;  // draws
    std::int32_t position;
  };
  std::vector<Candidate> candidates;
  for (std::int32_t position = 1; position + 1 < row.end; ++position) {
    const std::int32_t token = row.tokens[static_cast<std::size_t>(position)];
    if (!is_text_[static_cast<std::size_t>(token)]) continue;
    const Philox4 draw =
        philox4x32({static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32),
                    static_cast<std::uint32_t>(position), 0},
                   key_);
    candidates.push_back({draw[0], draw[1], draw[2], position});
  }
  const auto count =
      static_cast<std::size_t>(masked_tokens(std::ssize(candidates), options_.share));
  std::ranges::sort(candidates, {},
                    [](const Candidate& one) { return std::pair(one.order, one.position); });
  candidates.resize(count);
  std::ranges::sort(candidates, {}, &Candidate::position);
  std::ranges::fill(row.positions, 0);
  std::ranges::fill(row.targets, ops::kMaskedTarget);
  for (std::size_t i = 0; i < count; ++i) {
    const Candidate& one = candidates[i];
    std::int32_t& token = row.tokens[static_cast<std::size_t>(one.position)];
    row.positions[i] = one.position;
    row.targets[i] = token;
    const float kind = philox_uniform(one.kind);
    if (kind <= kShareOfMask) {
      token = special_.mask;
    } else if (kind <= kShareOfMaskOrRandom) {
      token = replacements_[std::uint64_t{one.token} * replacements_.size() >> 32];
    }
  }
}

bool joins_spaces(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> space, word;
  tokenizer.encode("a ", space);
  tokenizer.encode("a the", word);
  return !std::ranges::equal(space, std::span(word).first(std::min(word.size(), space.size())));
}

TextToFill text_to_fill(const Tokenizer& tokenizer, const SpecialTokens& special,
                        std::string_view text) {
  const bool joined = joins_spaces(tokenizer);
  TextToFill made{.tokens = {special.cls}, .masks = {}};
  for (;;) {
    const std::size_t mask = text.find(kMaskText);
    std::string_view piece = text.substr(0, mask);
    if (mask != std::string_view::npos && joined && piece.ends_with(' ')) piece.remove_suffix(1);
    tokenizer.encode(piece, made.tokens,
                     made.masks.empty() ? TextPart::kBegins : TextPart::kGoesOn);
    if (mask == std::string_view::npos) break;
    made.masks.push_back(static_cast<std::int32_t>(made.tokens.size()));
    made.tokens.push_back(special.mask);
    text.remove_prefix(mask + kMaskText.size());
  }
  made.tokens.push_back(special.sep);
  return made;
}

std::string filled_text(std::string_view text, std::span<const std::string> words, bool joined) {
  // A byte of a character beyond ASCII counts as one of a letter.
  const auto in_word = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || std::isalnum(byte) != 0;
  };
  std::string full;
  for (const std::string& word : words) {
    const std::size_t mask = text.find(kMaskText);
    full += text.substr(0, mask);
    text.remove_prefix(mask + kMaskText.size());
    const bool begins_word = word.starts_with(' '), more = word.size() > 1;
    if (joined && full.ends_with(' ')) {
      full.pop_back();
      full += word;
    } else {
      const bool apart = full.empty() || (!joined && !in_word(full.back()));
      full += std::string_view(word).substr(begins_word && more && apart ? 1 : 0);
    }
  }
  full += text;
  return full;
}

nn::HostMicroBatch make_host_masked_texts(ops::Context& ctx, std::int64_t batch,
                                          const MaskedSize& size, bool targets) {
  nn::HostMicroBatch host(ctx, batch, size.length);
  const Shape rows = {batch * size.length}, hidden = {batch * size.most};
  host.add(ctx, nn::kTokens, rows, DType::kI32);
  host.add(ctx, nn::kTargetRows, hidden, DType::kI32);
  if (targets) host.add(ctx, nn::kTargets, hidden, DType::kI32);
  if (size.padded) host.add(ctx, nn::kKeyEnd, rows, DType::kI32);
  return host;
}

nn::MicroBatch make_micro_batch(ops::Context& ctx, const MaskedBatch& data, const MaskedSize& size,
                                std::size_t begin, std::int64_t micro, bool training) {
  const std::size_t real = std::min(data.samples.size() - begin, static_cast<std::size_t>(micro));
  const auto ends = std::span(data.ends).subspan(begin, real);
  MaskedSize own = size;
  own.padded =
      size.padded || std::ranges::any_of(ends, [&](std::int32_t end) { return end < size.length; });
  const nn::HostMicroBatch host =
      make_host_masked_texts(ctx, micro, own, /*targets=*/!data.targets.empty());
  const auto take = [&](const auto& from, auto to, std::int64_t each, auto rest) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin) * each;
    std::fill(std::copy(first, first + static_cast<std::ptrdiff_t>(real) * each, to.begin()),
              to.end(), rest);
  };
  const auto field = [&](std::string_view name) {
    return host.fields.find(name).span<std::int32_t>();
  };
  take(data.tokens, field(nn::kTokens), size.length, size.pad);
  take(data.samples, host.samples.span<std::int64_t>(), 1, std::int64_t{0});
  const std::span<std::int32_t> rows = field(nn::kTargetRows);
  take(data.positions, rows, size.most, 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] += static_cast<std::int32_t>(static_cast<std::int64_t>(i) / size.most * size.length);
  }
  if (own.padded) {
    const std::span<std::int32_t> key_end = field(nn::kKeyEnd);
    for (std::size_t b = 0; b < static_cast<std::size_t>(micro); ++b) {
      const auto length = static_cast<std::size_t>(size.length);
      std::ranges::fill(key_end.subspan(b * length, length),
                        b < real ? ends[b] : static_cast<std::int32_t>(size.length));
    }
  }
  std::int64_t targets = 0;
  if (!data.targets.empty()) {
    take(data.targets, field(nn::kTargets), size.most, ops::kMaskedTarget);
    targets =
        std::ranges::count_if(field(nn::kTargets), [](std::int32_t target) { return target >= 0; });
  }
  return host.to_device(ctx, targets, training);
}

}  // namespace trireme
