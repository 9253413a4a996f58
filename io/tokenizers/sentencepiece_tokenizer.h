// The tokenizer over a SentencePiece model.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "trireme/io/tokenizer.h"

#include "io/tokenizers/word_cache.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace trireme {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `model` is a serialised ModelProto; `origin` names it in errors. Throws DataError.
  SentencePieceTokenizer(std::string model, const std::string& origin);
  ~SentencePieceTokenizer() override;

  std::string_view kind() const override { return "sentencepiece"; }
  std::string description() const override;
  const std::string& model() const override { return model_; }

 private:
  void add_tokens(std::string_view bytes, TextPart part,
                  std::vector<std::int32_t>& tokens) const override;
  void find_special_tokens(const std::string& origin);
  void encode_segment(std::string_view segment, WordCache& cache,
                      std::vector<std::int32_t>& tokens) const;
  void encode_unit(std::string_view unit, std::vector<std::int32_t>& tokens) const;
  void encode_text(std::string_view text, std::vector<std::int32_t>& tokens) const;
  void encode_bytes(std::string_view bytes, std::vector<std::int32_t>& tokens) const;

  std::string model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::array<std::int32_t, 256> byte_token_{};
  std::int32_t newline_token_ = 0;
  // Whether no piece extends past the end of a word, so that each word can be encoded by itself.
  bool words_are_independent_ = true;
};

// A model made by others, without its normalisation and dummy prefix. Throws DataError.
TokenizerPtr load_sentencepiece(std::string model, const std::string& origin);

}  // namespace trireme
