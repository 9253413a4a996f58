// Texts of which some tokens are hidden: the data of the masked language model (Devlin et al.
// 2019).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/io/dataset.h"
#include "trireme/io/tokenizer.h"
#include "trireme/nn/host_micro_batch.h"
#include "trireme/ops/context.h"

namespace trireme {

// The special tokens of a masked language model. Those that the tokenizer has are its own. Those
// that it lacks follow its vocabulary in the order [PAD], [CLS], [SEP], [MASK]. [UNK] is never
// added: a tokenizer without one has a token for everything.
struct SpecialTokens {
  std::int32_t pad = 0, cls = 0, sep = 0, mask = 0;
  std::int32_t vocabulary = 0;  // the tokenizer's and those that follow it
  // The names and numbers of these and of all other special tokens that the tokenizer has.
  std::vector<std::pair<std::string, std::int32_t>> names;

  // Returns the name of a token; empty for one that is not special.
  std::string_view name_of(std::int32_t token) const;
};
inline constexpr std::string_view kMaskText = "[MASK]";

SpecialTokens special_tokens(const Tokenizer& tokenizer);

// How many tokens of a sample are hidden: this share of those that may be, rounded, at least one.
std::int64_t masked_tokens(std::int64_t maskable, double share);
// The special tokens that every sample has, [CLS] and [SEP].
inline constexpr std::int64_t kTokensAroundText = 2;

// What micro-batches of masked texts have in common.
struct MaskedSize {
  std::int64_t length = 0;  // tokens of a sample, special ones and padding included
  std::int64_t most = 0;    // hidden tokens of a sample
  std::int32_t pad = 0;     // the token
  bool padded = false;      // kKeyEnd is always there, not only where samples have padding

  bool operator==(const MaskedSize&) const = default;
};

struct MaskedBatch {
  std::vector<std::uint64_t> samples;   // (n)
  std::vector<std::int32_t> tokens;     // (n, length)
  std::vector<std::int32_t> ends;       // (n): tokens that are no padding
  std::vector<std::int32_t> positions;  // (n, most), counted in the sample, rising; then 0
  // (n, most): what was hidden there; -1 where a sample has fewer. Empty: nobody knows.
  std::vector<std::int32_t> targets;
};

struct MaskingOptions {
  std::int64_t length = 0;  // of a sample
  double share = 0.15;      // of the tokens that may be hidden
  std::uint64_t seed = 1;
  bool training = true;  // other draws than in evaluations
  // A sample ends at its first end of text, but for those that it begins with, which are left out;
  // padding follows.
  bool ends_documents = false;
};

// Makes samples of pieces of a text: [CLS], the piece, [SEP], padding. Of the tokens that are
// neither special nor ends of text it hides some, drawn by the seed and the number of the sample
// alone: 80 % are replaced by [MASK], 10 % by any token of the tokenizer that stands for text, 10 %
// stay. Thread-safe.
class TextMasking {
 public:
  // Throws ConfigError for samples that have no room for text.
  TextMasking(const Tokenizer& tokenizer, const MaskingOptions& options);

  const SpecialTokens& special() const { return special_; }
  MaskedSize size() const {
    return {options_.length, most_, special_.pad, options_.ends_documents};
  }
  std::int64_t text_length() const { return options_.length - kTokensAroundText; }

  // `rows` has text_length() tokens for each sample, in which -1 ends a shorter piece.
  MaskedBatch batch(std::span<const std::uint64_t> samples,
                    std::span<const std::int32_t> rows) const;

 private:
  struct Row;
  void fill(std::span<const std::int32_t> text, const Row& row) const;
  void hide(std::uint64_t sample, const Row& row) const;

  MaskingOptions options_;
  SpecialTokens special_;
  std::int32_t end_of_text_;
  std::int64_t most_;
  std::uint64_t key_;
  std::vector<bool> is_text_;               // by token of the tokenizer
  std::vector<std::int32_t> replacements_;  // those that are
};

// Whether a space is part of the token behind it (" word"), as in most vocabularies that are
// learnt from texts: not in those of bytes and of WordPiece.
bool joins_spaces(const Tokenizer& tokenizer);

// A text whose [MASK]s a model fills in.
struct TextToFill {
  std::vector<std::int32_t> tokens;  // with [CLS] and [SEP]
  std::vector<std::int32_t> masks;   // the positions of its [MASK]s
};
// A literal [MASK] in the text is the special token, whatever the tokenizer makes of it. Where the
// tokenizer joins spaces with words, one space before a [MASK] belongs to what is masked.
TextToFill text_to_fill(const Tokenizer& tokenizer, const SpecialTokens& special,
                        std::string_view text);
// Returns the text with a word, the bytes of a token, in the place of each [MASK]. `joined` is what
// joins_spaces says of the tokenizer. Where it does, the word replaces the space before a [MASK],
// too. Where it does not, the space that a word begins with says that it is no part of the word
// before it, so it is written only behind a letter or a digit. No text begins with that space.
std::string filled_text(std::string_view text, std::span<const std::string> words, bool joined);

// A micro-batch of masked texts on the host: the fields kTokens, kTargetRows and kTargets, and
// kKeyEnd if size.padded. Their contents are undefined.
nn::HostMicroBatch make_host_masked_texts(ops::Context& ctx, std::int64_t batch,
                                          const MaskedSize& size, bool targets = true);

// Returns samples [begin, begin + micro) of a batch of data as a micro-batch. Samples past the end
// of `data` are padding with masked targets. Without targets in `data` it has no such field.
nn::MicroBatch make_micro_batch(ops::Context& ctx, const MaskedBatch& data, const MaskedSize& size,
                                std::size_t begin, std::int64_t micro, bool training);

}  // namespace trireme
