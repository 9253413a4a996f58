// Turns text into tokens and back. Those of bytes, those that we train, and byte-level BPE without
// a normalizer do so without loss: decode(encode(x)) == x for every byte string x.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Where bytes lie in a text: some tokenizers put a space before it.
enum class TextPart {
  kBegins,  // the text begins with them
  kGoesOn,  // they follow others, where cut() said
};

// Immutable once made; every member may be called from several threads at once.
//
// A text of any length can be encoded in pieces, with the same result as in one piece: cut() says
// where. Byte tokenizers and those of SentencePiece encode line by line.
class Tokenizer {
 public:
  // A line longer than this is encoded in segments of this many bytes, unless cut() is overridden.
  static constexpr std::size_t kSegmentBytes = 16384;
  // A model of more than this many bytes is refused, in a file of its own and in a shard.
  static constexpr std::size_t kMaxModelBytes = std::size_t{64} << 20;

  virtual ~Tokenizer() = default;

  // "byte", "sentencepiece", "huggingface", or "huggingface:TOKEN" with the token that ends texts.
  virtual std::string_view kind() const = 0;
  virtual std::string description() const = 0;  // for the user: "SentencePiece, 4096 tokens"
  // What make_tokenizer needs to make this tokenizer again. Every token shard stores it.
  virtual const std::string& model() const = 0;

  // Appends the tokens of `bytes`. Never yields end_of_text(): names of special tokens in a text
  // are ordinary text. Throws DataError if the pattern by which a tokenizer.json splits texts takes
  // too many steps.
  void encode(std::string_view bytes, std::vector<std::int32_t>& tokens,
              TextPart part = TextPart::kBegins) const {
    add_tokens(bytes, part, tokens);
  }
  std::vector<std::int32_t> encode(std::string_view bytes) const;

  // Returns how many of the first bytes can be encoded by themselves, whatever follows `bytes`:
  // encode(all) is encode(first) followed by encode(the rest), which goes on. 0: no such place is
  // known in `bytes`. Here: up to the last newline, or, if there is none, a multiple of
  // kSegmentBytes.
  virtual std::size_t cut(std::string_view bytes) const;

  // Returns the bytes that a token stands for, whatever its neighbours. Decoding is concatenation,
  // so generated text can be written token by token (a token may end inside a UTF-8 character). The
  // result is empty for end of text and other control tokens, and what SentencePiece has for its
  // unknown piece (" \u2047 "). Throws InternalError unless
  // 0 <= token < vocabulary().
  std::string_view bytes_of(std::int32_t token) const;
  // The text of all its tokens. Where encode() puts a space before a text, this takes one away.
  std::string decode(std::span<const std::int32_t> tokens) const;

  std::int32_t vocabulary() const { return static_cast<std::int32_t>(bytes_.size()); }
  std::int32_t end_of_text() const { return end_of_text_; }

  // The token before each text of models that have one, as Llama 3's <|begin_of_text|>. Nothing
  // here adds it: prepare does before documents, evaluations before their windows, generate before
  // prompts. It may be end_of_text(), which then stands once between two documents.
  std::optional<std::int32_t> begin_of_text() const { return begin_of_text_; }
  // Only before the tokenizer is shared. Throws DataError, which begins with `origin`, unless the
  // token is one of the vocabulary.
  void set_begin_of_text(std::optional<std::int32_t> token, const std::string& origin);

  // Tokens that stand for no text, by their names: "[MASK]", "<|endoftext|>". Encoding does not
  // look for these names, so it yields none of them but WordPiece's token for unknown words and,
  // where a tokenizer.json has one in its vocabulary as a word, too, that word; end_of_text()
  // never. A byte tokenizer has none, since its end of text has no name.
  using SpecialTokens = std::map<std::string, std::int32_t, std::less<>>;
  const SpecialTokens& special_tokens() const { return special_tokens_; }
  std::optional<std::int32_t> special_token(std::string_view name) const;  // none: it has no such
  std::string_view name_of(std::int32_t token) const;  // of a special one; empty: of another

 protected:
  Tokenizer() = default;
  void set_vocabulary(std::vector<std::string> bytes, std::int32_t end_of_text,
                      SpecialTokens special_tokens);
  // encode() puts a space before each text.
  void set_leading_space() { has_leading_space_ = true; }

 private:
  // encode() without its default.
  virtual void add_tokens(std::string_view bytes, TextPart part,
                          std::vector<std::int32_t>& tokens) const = 0;

  std::vector<std::string> bytes_;  // by token
  std::int32_t end_of_text_ = 0;
  std::optional<std::int32_t> begin_of_text_;
  bool has_leading_space_ = false;
  SpecialTokens special_tokens_;
};

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

// Makes the tokenizer that a shard names, from the kind and model that Tokenizer returns. Throws
// DataError for an unknown kind or a malformed model.
TokenizerPtr make_tokenizer(std::string_view kind, std::string_view model,
                            std::optional<std::int32_t> begin_of_text = {});

// A tokenizer on its way to another rank, and the one that comes out there.
std::string packed(const Tokenizer& tokenizer);
TokenizerPtr unpacked_tokenizer(std::string_view packed);

// Makes the tokenizer of 256 bytes and end of text: token b is byte b, token 256 ends a text.
TokenizerPtr make_byte_tokenizer();

// The tokens around documents, by their names; empty: what the tokenizer's files say.
struct DocumentTokens {
  std::string begin_of_text = {};  // "none": there is none
  std::string end_of_text = {};
  bool have_flags = false;  // --begin-of-text and --end-of-text, which errors then name
};

// Loads a tokenizer made by others: a tokenizer.json of Hugging Face's tokenizers, Llama 3's rank
// file of tiktoken, Mistral's tekken.json, or else a SentencePiece model. `path` is the file, or a
// folder that holds it under one of their names, or in its folder `tokenizer`, as runs do. Throws
// ConfigError if the file cannot be read or is too large.
//
// A tokenizer.json may have BPE, Unigram or WordPiece; io/tokenizers/huggingface_tokenizer.h lists
// its parts. Tokens are those that the `tokenizers` package gives without special tokens. Throws
// DataError that names the part of the file that is not supported.
//
// End of text is the token that is named, else the `eos_token` of a tokenizer_config.json beside
// the file, else the one that the file is known to have or puts after texts. Begin of text is the
// token that is named; else what `add_bos_token` there, or the class, says; else what the
// post-processor puts before texts, but for [CLS], which belongs to samples; of rank files that of
// their models.
//
// A SentencePiece model gives the tokens that SentencePiece gives, with its normalisation and its
// dummy prefix, but that bytes that are not UTF-8 become their tokens where the model has byte
// pieces (byte_fallback); one that train_sentencepiece() made leaves nothing out. Throws DataError
// unless an end of text is a control piece; unless it is named, it is the model's end-of-text,
// begin-of-text or padding piece.
TokenizerPtr load_tokenizer(const std::string& path, const DocumentTokens& named = {});

constexpr std::int32_t kSmallestSentencePieceVocabulary = 300;

struct SentencePieceTraining {
  enum class Algorithm { kBpe, kUnigram };
  Algorithm algorithm = Algorithm::kBpe;
  std::int32_t vocabulary = 4096;  // all tokens: 256 bytes, end of text, unknown, and the pieces
};

// Trains on the lines of `sample`. The result is a pure function of the arguments. Throws
// ConfigError for a vocabulary below the smallest, DataError if the sample is too small for the
// vocabulary.
TokenizerPtr train_sentencepiece(std::string_view sample, const SentencePieceTraining& training);

}  // namespace trireme
