// The tokenizer of a tokenizer.json of Hugging Face.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/io/tokenizer.h"

#include "added_tokens.h"
#include "byte_pair_encoding.h"
#include "tokenizer_file.h"
#include "word_piece.h"

namespace trireme {

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kKind = "huggingface";

  // `model` is the text of a tokenizer.json. `end_of_text` names the added token that ends texts;
  // empty: the one that the file is known to have for that. `origin` names the file in errors.
  // Throws DataError for a file that is not supported, and where it is not clear which token ends
  // texts.
  HuggingFaceTokenizer(std::string model, std::string_view end_of_text, const std::string& origin);

  // "huggingface", or, with a token that was named to end texts, "huggingface:<|im_end|>".
  std::string_view kind() const override { return kind_; }
  std::string description() const override;
  const std::string& model() const override { return model_; }
  // Throws DataError if the file's split pattern takes too many steps.
  void encode(std::string_view bytes, std::vector<std::int32_t>& tokens) const override;
  std::size_t cut(std::string_view bytes) const override;

 private:
  class Encoding;
  struct Parsed;

  HuggingFaceTokenizer(Parsed parsed, std::string model, std::string_view end_of_text,
                       const std::string& origin);

  // Calls `on_text(part)` and `on_token(token, part)` for the parts of a text in turn: what is
  // text, and tokens that are looked for as they are written. `on_kept(part)` as AddedTokens has
  // it.
  template <class OnText, class OnToken, class OnKept>
  void divide_text(std::string_view text, OnText on_text, OnToken on_token, OnKept on_kept) const;
  // The same for bytes of which some are not UTF-8: `on_byte(part)`.
  template <class OnText, class OnToken, class OnByte, class OnKept>
  void divide(std::string_view bytes, OnText on_text, OnToken on_token, OnByte on_byte,
              OnKept on_kept) const;
  std::string normalised_text(std::string_view text) const;
  // The last place in a text, which goes on, where it can be cut whatever follows; 0 if none is
  // known. `may_be_cut(place)` says of a place whether it is in no added token.
  using MayBeCut = std::function<bool(std::size_t)>;
  std::size_t last_boundary(std::string_view text, const MayBeCut& may_be_cut) const;
  std::size_t last_split(std::string_view text, const MayBeCut& may_be_cut) const;

  std::string kind_, model_;
  std::vector<TokenizerFile::Normalizer> normalizers_;
  std::vector<SplitPattern> splits_;
  AddedTokens raw_added_, normalised_added_;
  std::variant<BytePairEncoding, WordPiece> encoding_;
};

}  // namespace trireme
