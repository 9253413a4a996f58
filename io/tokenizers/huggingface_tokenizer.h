// The tokenizer of a tokenizer.json of Hugging Face. It gives the tokens that their package gives
// with add_special_tokens = False and encode_special_tokens = True. Read are:
//
// - model: BPE of bytes, also with ignore_merges; WordPiece.
// - pre_tokenizer: with BPE ByteLevel without add_prefix_space, alone or after up to 32 Splits (by
//   regular expressions or strings, Isolated); with WordPiece BertPreTokenizer; Sequence.
// - normalizer: NFC, NFD, NFKC, NFKD, BertNormalizer, Sequence; up to 32 in all.
// - added_tokens: those that are not special are found in texts as they are written. For these
//   single_word, lstrip, rstrip, and normalized where there is a normalizer, are refused. Special
//   tokens that are written out in a text are ordinary text. Numbers of tokens must leave none out.
// - post_processor: ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing. What they add
//   around a text is not added, since documents end with one end of text.
// - truncation, padding and decoder are ignored.
//
// Everything else is refused by its name (Unigram, Metaspace, byte_fallback, dropout and so on). Of
// regular expressions (split_pattern.h) anchors, looking behind and what PCRE2 and Oniguruma read
// differently are refused; of (?i:...) all but ASCII words without ss, ff, fi, fl and st, and
// classes of ASCII letters. A match that takes more than 10 million steps throws.
//
// Bytes that are not UTF-8 become the tokens of these bytes; WordPiece reads each as U+FFFD.
// Decoding WordPiece puts a space before each word, and what was normalised or unknown stays so.
//
// Normal forms and classes are those of Debian's utf8proc (Unicode 14 or 15) and PCRE2 (14). The
// package has older ones for BERT's normalizer (Unicode 8) and newer ones for patterns, so
// characters that are newer than its own may have other tokens.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/io/tokenizer.h"

#include "io/tokenizers/added_tokens.h"
#include "io/tokenizers/byte_pair_encoding.h"
#include "io/tokenizers/tokenizer_file.h"
#include "io/tokenizers/word_piece.h"

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
