// The tokenizer over a SentencePiece model.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "trireme/io/tokenizer.h"

#include "io/tokenizers/sentencepiece_normalizer.h"
#include "io/tokenizers/word_cache.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace trireme {

// The piece that ends texts in models that we train.
constexpr std::string_view kTrainedEnd = "<|endoftext|>";

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Without loss: line by line, the model's normalisation is left out; for models that have byte
  // pieces. Exact: the tokens that SentencePiece itself gives, but for bytes that are not UTF-8,
  // which become their tokens where bytes have pieces.
  enum class Mode { kLossless, kExact };
  static constexpr std::string_view kKind = "sentencepiece", kExactKind = "sentencepiece:exact";

  // `model` is a serialised ModelProto; `origin` names it in errors. `end_of_text` names the
  // control piece that ends texts; empty: the model's own. Throws DataError.
  SentencePieceTokenizer(std::string model, Mode mode, const std::string& origin,
                         std::string_view end_of_text = {});
  ~SentencePieceTokenizer() override;

  // One of the two, or "sentencepiece:exact:</s>" with a piece that was named to end texts and is
  // not the model's own.
  std::string_view kind() const override { return kind_; }
  std::string description() const override;
  const std::string& model() const override { return model_; }
  std::size_t cut(std::string_view bytes) const override;
  bool has_bytes() const { return byte_token_[0] >= 0; }

 private:
  void add_tokens(std::string_view bytes, TextPart part,
                  std::vector<std::int32_t>& tokens) const override;
  void find_special_tokens(std::string_view unknown, std::int32_t end, const std::string& origin);
  std::int32_t own_end() const;  // below 0: there is none
  std::int32_t piece_named(std::string_view name, const std::string& origin) const;
  void find_pairs(std::string_view piece);
  void add_exact(std::string_view bytes, bool begins, std::vector<std::int32_t>& tokens) const;
  // The characters that most words begin with, which units then begin with.
  bool begins_units(char32_t character) const;
  // Whether unknown pieces may meet between the two characters: they would become one.
  bool may_join(char32_t left, char32_t right) const;
  // How much of a text in normal form can be encoded by itself.
  std::size_t unit_length(std::string_view text) const;
  void encode_segment(std::string_view segment, WordCache& cache,
                      std::vector<std::int32_t>& tokens) const;
  void encode_unit(std::string_view unit, std::vector<std::int32_t>& tokens) const;
  void encode_text(std::string_view text, std::vector<std::int32_t>& tokens) const;
  void encode_bytes(std::string_view bytes, std::vector<std::int32_t>& tokens) const;

  std::string kind_, model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::array<std::int32_t, 256> byte_token_{};
  std::int32_t newline_token_ = 0;
  std::optional<SentencePieceNormalizer> exact_;  // none: without loss
  // What characters come before which in pieces; only before those that words begin with.
  std::set<std::pair<char32_t, char32_t>> pairs_;
  std::set<char32_t> known_;  // characters that are pieces
  bool is_of_words_ = false;  // words are pieces, or unknown
  // Whether no piece extends past the end of a word, so that each word can be encoded by itself.
  bool words_are_independent_ = true;
};

// Whether a tokenizer of this kind is exact.
bool is_exact_sentencepiece(std::string_view kind);
// Makes the tokenizer of such a kind again. Throws DataError.
std::shared_ptr<SentencePieceTokenizer> stored_sentencepiece(std::string_view kind,
                                                             std::string_view model,
                                                             const std::string& origin);

// A model from a file. Those that train_sentencepiece made are without loss, others exact.
// `end_of_text` as above. Throws DataError.
std::shared_ptr<SentencePieceTokenizer> load_sentencepiece(std::string model,
                                                           std::string_view end_of_text,
                                                           const std::string& origin);

}  // namespace trireme
