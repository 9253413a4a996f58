#include "huggingface_tokenizer.h"

#include <algorithm>
#include <array>
#include <deque>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

#include "word_cache.h"

namespace trireme {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr std::string_view kAsciiSpaces = " \t\n\r";

// The names that tokens have which end texts.
constexpr std::array<std::string_view, 5> kEnds = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                                   "<eos>", "[SEP]"};

std::string names_of(const std::vector<TokenizerFile::AddedToken>& tokens) {
  constexpr std::size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const auto& token : tokens) {
    if (names.size() == kMostNames) {
      names.emplace_back("...");
      break;
    }
    names.push_back(shown(token.text));
  }
  return names.empty() ? "it has none" : fmt::format("{}", fmt::join(names, ", "));
}

std::int32_t end_of_text_of(const TokenizerFile& file, std::string_view name,
                            const std::string& origin) {
  std::vector<TokenizerFile::AddedToken> found;
  for (const auto& token : file.added) {
    const bool is_end = std::ranges::find(kEnds, token.text) != kEnds.end();
    if (name.empty() ? token.is_special && is_end : token.text == name) found.push_back(token);
  }
  if (found.size() == 1) return found.front().token;
  if (!name.empty()) {
    throw DataError(fmt::format("{}: '{}' is none of its added tokens ({}), so it cannot end texts",
                                origin, shown(name), names_of(file.added)));
  }
  throw DataError(
      found.empty()
          ? fmt::format("{}: none of its special tokens is known to end texts: --end-of-text TOKEN "
                        "names one of its added tokens ({})",
                        origin, names_of(file.added))
          : fmt::format(
                "{}: several of its tokens may end texts ({}): --end-of-text TOKEN names one",
                origin, names_of(found)));
}

AddedTokens added_tokens(const TokenizerFile& file, std::int32_t end_of_text, bool normalised) {
  std::vector<AddedTokens::Token> tokens;
  for (const auto& token : file.added) {
    if (token.is_normalized != normalised) continue;
    const bool stays_text = token.is_special || token.token == end_of_text;
    tokens.push_back({token.text, stays_text ? -1 : token.token});
  }
  return AddedTokens(std::move(tokens));
}

std::variant<BytePairEncoding, WordPiece> encoding_of(const TokenizerFile& file,
                                                      std::int32_t end_of_text,
                                                      const std::string& origin) {
  if (std::holds_alternative<TokenizerFile::WordPieces>(file.model)) return WordPiece(file);
  return BytePairEncoding(file, end_of_text, origin);
}

std::vector<std::string> bytes_of_tokens(
    const std::variant<BytePairEncoding, WordPiece>& encoding) {
  const auto* words = std::get_if<WordPiece>(&encoding);
  return words ? words->token_texts() : std::get<BytePairEncoding>(encoding).token_bytes();
}

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace

struct HuggingFaceTokenizer::Parsed {
  TokenizerFile file;
  std::int32_t end_of_text;

  Parsed(std::string_view model, std::string_view name, const std::string& origin)
      : file(parse_tokenizer_file(model, origin)),
        end_of_text(end_of_text_of(file, name, origin)) {}
};

HuggingFaceTokenizer::HuggingFaceTokenizer(std::string model, std::string_view end_of_text,
                                           const std::string& origin)
    : HuggingFaceTokenizer(Parsed(model, end_of_text, origin), model, end_of_text, origin) {}

HuggingFaceTokenizer::HuggingFaceTokenizer(Parsed parsed, std::string model,
                                           std::string_view end_of_text, const std::string& origin)
    : kind_(kKind),
      model_(std::move(model)),
      normalizers_(std::move(parsed.file.normalizers)),
      splits_(std::move(parsed.file.splits)),
      raw_added_(added_tokens(parsed.file, parsed.end_of_text, false)),
      normalised_added_(added_tokens(parsed.file, parsed.end_of_text, true)),
      encoding_(encoding_of(parsed.file, parsed.end_of_text, origin)) {
  if (!end_of_text.empty()) kind_ += fmt::format(":{}", end_of_text);
  std::vector<std::string> bytes = bytes_of_tokens(encoding_);
  SpecialTokens special_tokens;
  for (const auto& token : parsed.file.added) {
    const bool is_end = token.token == parsed.end_of_text;
    if (token.is_special || is_end) special_tokens.emplace(token.text, token.token);
    bytes[static_cast<std::size_t>(token.token)] = token.text;
  }
  if (const auto* words = std::get_if<TokenizerFile::WordPieces>(&parsed.file.model)) {
    special_tokens.emplace(parsed.file.tokens[static_cast<std::size_t>(words->unknown)],
                           words->unknown);
  }
  for (const auto& [name, token] : special_tokens) bytes[static_cast<std::size_t>(token)].clear();
  set_vocabulary(std::move(bytes), parsed.end_of_text, std::move(special_tokens));
}

std::string HuggingFaceTokenizer::description() const {
  const bool is_words = std::holds_alternative<WordPiece>(encoding_);
  return fmt::format("Hugging Face's {}, {} tokens", is_words ? "WordPiece" : "byte-level BPE",
                     vocabulary());
}

template <class OnText, class OnToken>
void HuggingFaceTokenizer::divide_text(std::string_view text, OnText on_text,
                                       OnToken on_token) const {
  raw_added_.divide(
      text, [&](std::string_view raw) { normalised_added_.divide(raw, on_text, on_token); },
      on_token);
}

template <class OnText, class OnToken, class OnByte>
void HuggingFaceTokenizer::divide(std::string_view bytes, OnText on_text, OnToken on_token,
                                  OnByte on_byte) const {
  const auto valid = [&](std::string_view text) { divide_text(text, on_text, on_token); };
  std::size_t begin = 0, at = 0;
  while (at < bytes.size()) {
    if ((bytes[at] & 0x80) == 0) {
      ++at;
      continue;
    }
    const std::size_t length = utf8_length(bytes.substr(at));
    if (length == 0) {
      if (at > begin) valid(bytes.substr(begin, at - begin));
      on_byte(bytes.substr(at, 1));
      begin = at + 1;
    }
    at += std::max<std::size_t>(length, 1);
  }
  if (at > begin) valid(bytes.substr(begin));
}

std::string HuggingFaceTokenizer::normalised_text(std::string_view text) const {
  std::string made(text);
  for (const TokenizerFile::Normalizer& normalizer : normalizers_) {
    const auto* form = std::get_if<NormalForm>(&normalizer);
    made = form ? normalised(made, *form)
                : bert_text(made, std::get<TokenizerFile::BertText>(normalizer));
  }
  return made;
}

// One call of encode().
class HuggingFaceTokenizer::Encoding {
 public:
  Encoding(const HuggingFaceTokenizer& tokenizer, std::vector<std::int32_t>& tokens)
      : own_(tokenizer), tokens_(tokens) {
    for (const SplitPattern& pattern : own_.splits_) matchers_.emplace_back(pattern);
  }

  void add(std::string_view bytes) {
    const auto on_token = [&](std::int32_t token, std::string_view) { tokens_.push_back(token); };
    if (const auto* pairs = std::get_if<BytePairEncoding>(&own_.encoding_)) {
      own_.divide(
          bytes, [&](std::string_view text) { split(0, normalised_if_needed(text)); }, on_token,
          [&](std::string_view byte) { tokens_.push_back(pairs->token_of_byte(byte.front())); });
      return;
    }
    const auto& pieces = std::get<WordPiece>(own_.encoding_);
    own_.divide_text(
        with_replacements(bytes),
        [&](std::string_view text) {
          for (const std::string_view word : bert_words(normalised_if_needed(text))) {
            encode_word(pieces, word);
          }
        },
        on_token);
  }

 private:
  std::string_view kept(std::string text) { return texts_.emplace_back(std::move(text)); }

  std::string_view normalised_if_needed(std::string_view text) {
    const bool is_pure = std::ranges::all_of(own_.normalizers_, [](const auto& normalizer) {
      return std::holds_alternative<NormalForm>(normalizer);  // they leave ASCII as it is
    });
    if (own_.normalizers_.empty() || (is_pure && is_ascii(text))) return text;
    return kept(own_.normalised_text(text));
  }

  // What other programs make of bytes that are not UTF-8.
  std::string_view with_replacements(std::string_view bytes) {
    std::string made;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = utf8_length(bytes.substr(at));
      if (length == 0) {
        made += bytes.substr(begin, at - begin);
        made += kReplacement;
        begin = at + 1;
      }
      at += std::max<std::size_t>(length, 1);
    }
    if (begin == 0) return bytes;
    made += bytes.substr(begin);
    return kept(std::move(made));
  }

  // Cuts the text by the patterns from this level on, and encodes what is left.
  void split(std::size_t level, std::string_view text) {
    if (level == matchers_.size()) {
      encode_word(std::get<BytePairEncoding>(own_.encoding_), text);
      return;
    }
    for (std::size_t start = 0; start < text.size();) {
      const auto match = matchers_[level].find(text, start);
      if (match.begin > start) split(level + 1, text.substr(start, match.begin - start));
      if (match.end > match.begin) {
        split(level + 1, text.substr(match.begin, match.end - match.begin));
      }
      start = match.end;
    }
  }

  template <class Model>
  void encode_word(const Model& model, std::string_view word) {
    const auto made = cache_.tokens(
        word,
        [&](std::string_view unit, std::vector<std::int32_t>& to) { model.encode_word(unit, to); });
    tokens_.insert(tokens_.end(), made.begin(), made.end());
  }

  const HuggingFaceTokenizer& own_;
  std::vector<std::int32_t>& tokens_;
  std::vector<SplitPattern::Matcher> matchers_;
  std::deque<std::string> texts_;  // what the cache's words are views of, besides the input
  WordCache cache_;
};

void HuggingFaceTokenizer::encode(std::string_view bytes, std::vector<std::int32_t>& tokens) const {
  Encoding(*this, tokens).add(bytes);
}

// What follows the bytes may change how their end is divided and matched. So only boundaries count
// that the end did not touch.
std::size_t HuggingFaceTokenizer::cut(std::string_view bytes) const {
  const std::size_t margin = 2 * std::max(raw_added_.longest(), normalised_added_.longest()) + 4;
  if (bytes.size() <= margin) return 0;
  std::size_t usable = bytes.size() - margin;
  for (int i = 0; i < 3 && usable > 0 && continues_character(bytes[usable]); ++i) --usable;
  std::size_t sure = 0;
  std::string_view last;  // the text that goes on beyond what is usable
  const auto begin_of = [&](std::string_view part) {
    return static_cast<std::size_t>(part.data() - bytes.data());
  };
  const auto fixed = [&](std::string_view part) {
    const std::size_t end = begin_of(part) + part.size();
    if (end <= usable) sure = end;
  };
  const auto on_text = [&](std::string_view text) {
    const std::size_t begin = begin_of(text);
    fixed(text);
    if (begin < usable && begin + text.size() > usable) last = text.substr(0, usable - begin);
  };
  const auto on_token = [&](std::int32_t, std::string_view part) { fixed(part); };
  if (std::holds_alternative<WordPiece>(encoding_)) {
    divide_text(bytes, on_text, on_token);  // stray bytes are part of the words around them
  } else {
    divide(bytes, on_text, on_token, fixed);
  }
  const std::size_t boundary = last.empty() ? 0 : last_boundary(last);
  return boundary > 0 ? begin_of(last) + boundary : sure;
}

// The last place in a text, which goes on, that ends a word whatever follows; 0 if there is none.
std::size_t HuggingFaceTokenizer::last_boundary(std::string_view text) const {
  if (std::holds_alternative<WordPiece>(encoding_)) {
    const std::size_t space = text.find_last_of(kAsciiSpaces);
    return space == std::string_view::npos ? 0 : space;
  }
  return last_boundary_of_words(text);
}

std::size_t HuggingFaceTokenizer::last_boundary_of_words(std::string_view text) const {
  if (splits_.empty()) return 0;
  const auto boundaries_of = [&](std::string_view whole) {
    std::vector<std::size_t> boundaries;
    SplitPattern::Matcher matcher(splits_.front());
    for (std::size_t start = 0; start < whole.size();) {
      const auto match = matcher.find(whole, start, true);
      if (match.begin == match.end) break;
      if (match.begin > start) boundaries.push_back(match.begin);
      boundaries.push_back(match.end);
      start = match.end;
    }
    return boundaries;
  };
  // A normal form depends on nothing beyond an ASCII character, so the text ends before one.
  const auto is_ascii_byte = [](char byte) { return (byte & 0x80) == 0; };
  if (!normalizers_.empty() && !is_ascii(text)) {
    const auto last = std::find_if(text.rbegin(), text.rend(), is_ascii_byte);
    if (last == text.rend()) return 0;
    text = text.substr(0, static_cast<std::size_t>(text.rend() - last) - 1);
  }
  const std::string whole = normalised_text(text);
  const std::vector<std::size_t> boundaries = boundaries_of(whole);
  if (whole == text) return boundaries.empty() ? 0 : boundaries.back();
  // From the end backwards: the place of each ASCII character in the normalised text.
  std::size_t place = whole.size(), end = text.size();
  for (std::size_t at = text.size(); at-- > 1;) {
    if (!is_ascii_byte(text[at])) continue;
    place -= normalised_text(text.substr(at, end - at)).size();
    end = at;
    if (std::ranges::binary_search(boundaries, place)) return at;
  }
  return 0;
}

}  // namespace trireme
