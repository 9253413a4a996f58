// The tokenizer of a tokenizer.json of Hugging Face. It gives the tokens that their package gives
// with add_special_tokens = False and encode_special_tokens = True. Read are:
//
// - model: BPE of bytes and of characters (byte_fallback, fuse_unk, unk_token, ignore_merges);
//   Unigram; WordPiece.
// - normalizer: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace,
// Precompiled,
//   BertNormalizer, Sequence.
// - pre_tokenizer: Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace,
//   BertPreTokenizer, Sequence; with BPE last of all ByteLevel. Up to 32 of each kind.
// - added_tokens: those that are not special are found in texts. Special tokens that are written
//   out in a text are ordinary text. Numbers of tokens must leave none out.
// - post_processor: ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing. What they add
//   around a text is not added; before_texts() tells what comes before it.
// - decoder: what a token stands for, by Replace, ByteFallback, ByteLevel, Metaspace, Strip, Fuse,
//   Sequence, WordPiece. Bytes' and WordPiece's tokens need none.
// - truncation and padding are ignored.
//
// Everything else is refused by its name (dropout, continuing_subword_prefix of BPE and so on). Of
// regular expressions (split_pattern.h) anchors, looking behind and what PCRE2 and Oniguruma read
// differently are refused; of (?i:...) all but ASCII words without ss, ff, fi, fl and st, and
// classes of ASCII letters. A match that takes more than 10 million steps throws.
//
// Bytes that are not UTF-8 become the tokens of these bytes, or are read as U+FFFD where bytes have
// none. Decoding WordPiece puts a space before each word, and what was normalised or unknown stays
// so.
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
#include "io/tokenizers/unigram.h"
#include "io/tokenizers/word_piece.h"

namespace trireme {

// The file beside a tokenizer's that says which tokens stand around texts.
inline constexpr const char* kTokenizerConfigName = "tokenizer_config.json";

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kKind = "huggingface";

  // Who gives the token that ends texts, or could: a user by --end-of-text, or another file that
  // lies beside this one. What such a file says is part of kind() only where this one alone would
  // have another end.
  enum class EndBy { kUser, kOtherFile };

  // `model` is the text of a tokenizer.json. `end_of_text` names the added token that ends texts;
  // empty: the one that the file is known to have for that. `origin` names the file in errors.
  // Throws DataError for a file that is not supported, and where it is not clear which token ends
  // texts.
  HuggingFaceTokenizer(std::string model, std::string_view end_of_text, const std::string& origin,
                       EndBy end_by = EndBy::kUser);

  // "huggingface", or, with a token that was named to end texts, "huggingface:<|im_end|>"; of rank
  // files (rank_file.h) "tiktoken" or "tekken" instead.
  std::string_view kind() const override { return kind_; }
  std::string description() const override;
  const std::string& model() const override { return model_; }
  std::size_t cut(std::string_view bytes) const override;
  // The names of the tokens that the file puts before a text.
  const std::vector<std::string>& before_texts() const { return before_texts_; }

 private:
  class Encoding;
  struct Parsed;

  HuggingFaceTokenizer(Parsed parsed, std::string model, const std::string& origin);

  // Throws DataError if the file's split pattern takes too many steps.
  void add_tokens(std::string_view bytes, TextPart part,
                  std::vector<std::int32_t>& tokens) const override;

  // Whether every byte has a token of its own: bytes that are not UTF-8 then become these.
  bool has_bytes() const;
  std::int32_t token_of_byte(char byte) const;
  // Calls `on_text(part)` for what is UTF-8, and `on_byte(part)` for each byte that is not.
  template <class OnText, class OnByte>
  void divide(std::string_view bytes, OnText on_text, OnByte on_byte) const;

  // The last place in a text where it can be cut whatever follows `beyond`, which goes on with it;
  // 0 if none is known. `is_whole`: the text begins where one begins or was cut.
  // `may_be_cut(place)` says of a place whether it is in no added token.
  using MayBeCut = std::function<bool(std::size_t)>;
  std::size_t last_boundary(std::string_view text, std::string_view beyond, bool is_whole,
                            const MayBeCut& may_be_cut) const;
  bool cuts_at_spaces() const;  // whatever is around them
  // Where the leading pattern divides words.
  std::size_t last_split(std::string_view text, std::string_view beyond,
                         const MayBeCut& may_be_cut) const;
  // Before white space where all steps treat the sides by themselves.
  std::size_t last_space(std::string_view text, std::string_view beyond,
                         const MayBeCut& may_be_cut) const;

  std::string kind_, model_;
  AddedTokens raw_added_, normalised_added_;
  std::variant<BytePairEncoding, WordPiece, Unigram> encoding_;
  bool is_byte_level_ = false;
  std::vector<std::string> before_texts_;
  Normalizers normalizers_;
  PreTokenizers pre_tokenizers_;
};

}  // namespace trireme
