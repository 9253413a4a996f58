// The tokens of a shard whose tokenizer nobody named: numbers, which stand for no known text.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/io/tokenizer.h"

namespace trireme {

class NumberTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kKind = "numbers";
  static constexpr std::int32_t kMostTokens = std::int32_t{1} << 22;

  // 0 <= end_of_text < vocabulary.
  NumberTokenizer(std::int32_t vocabulary, std::int32_t end_of_text);
  // Takes what model() gives: "50257 50256". Throws DataError for another text.
  explicit NumberTokenizer(std::string_view model);

  std::string_view kind() const override { return kKind; }
  std::string description() const override;
  const std::string& model() const override { return model_; }

 private:
  // Throws DataError: there is no way from text to tokens.
  void add_tokens(std::string_view bytes, TextPart part,
                  std::vector<std::int32_t>& tokens) const override;

  std::string model_;
};

}  // namespace trireme
