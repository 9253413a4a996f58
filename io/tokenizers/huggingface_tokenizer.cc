#include "io/tokenizers/huggingface_tokenizer.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

#include "io/tokenizers/split_boundaries.h"
#include "io/tokenizers/word_cache.h"

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
  if (std::holds_alternative<TokenizerFile::WordPieces>(file.model)) {
    return WordPiece(file, end_of_text, origin);
  }
  return BytePairEncoding(file, end_of_text, origin);
}

std::vector<std::string> bytes_of_tokens(
    const std::variant<BytePairEncoding, WordPiece>& encoding) {
  const auto* words = std::get_if<WordPiece>(&encoding);
  return words ? words->token_texts() : std::get<BytePairEncoding>(encoding).token_bytes();
}

void ignore(std::string_view) {}

// Parts of a text in which no token begins or ends.
class KeptParts {
 public:
  void add(std::size_t begin, std::size_t end) { parts_.push_back({begin, end}); }

  // Call it once, after add().
  void sort() {
    std::ranges::sort(parts_, {}, &Part::begin);
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      parts_[i].end = std::max(parts_[i].end, parts_[i - 1].end);  // they may overlap
    }
  }

  bool have_inside(std::size_t place) const {
    const auto after = std::ranges::lower_bound(parts_, place, {}, &Part::begin);
    return after != parts_.begin() && std::prev(after)->end > place;
  }

 private:
  struct Part {
    std::size_t begin, end;
  };
  std::vector<Part> parts_;
};

// An ASCII character that no normalizer takes away.
bool stays_in_text(char byte) {
  return (byte >= ' ' && byte < 0x7f) || byte == '\t' || byte == '\n' || byte == '\r';
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

template <class OnText, class OnToken, class OnKept>
void HuggingFaceTokenizer::divide_text(std::string_view text, OnText on_text, OnToken on_token,
                                       OnKept on_kept) const {
  raw_added_.divide(
      text,
      [&](std::string_view raw) { normalised_added_.divide(raw, on_text, on_token, on_kept); },
      on_token, on_kept);
}

template <class OnText, class OnToken, class OnByte, class OnKept>
void HuggingFaceTokenizer::divide(std::string_view bytes, OnText on_text, OnToken on_token,
                                  OnByte on_byte, OnKept on_kept) const {
  const auto valid = [&](std::string_view text) { divide_text(text, on_text, on_token, on_kept); };
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
          [&](std::string_view byte) { tokens_.push_back(pairs->token_of_byte(byte.front())); },
          ignore);
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
        on_token, ignore);
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
  std::vector<std::size_t> sure;  // ends of parts
  KeptParts kept;
  std::string_view last;  // the text that goes on beyond what is usable
  const auto begin_of = [&](std::string_view part) {
    return static_cast<std::size_t>(part.data() - bytes.data());
  };
  const auto fixed = [&](std::string_view part) {
    const std::size_t end = begin_of(part) + part.size();
    if (end <= usable) sure.push_back(end);
  };
  const auto on_text = [&](std::string_view text) {
    const std::size_t begin = begin_of(text);
    fixed(text);
    if (begin < usable && begin + text.size() > usable) last = text.substr(0, usable - begin);
  };
  const auto on_token = [&](std::int32_t, std::string_view part) { fixed(part); };
  const auto on_kept = [&](std::string_view part) {
    kept.add(begin_of(part), begin_of(part) + part.size());
  };
  if (std::holds_alternative<WordPiece>(encoding_)) {
    divide_text(bytes, on_text, on_token, on_kept);  // stray bytes are part of words
  } else {
    divide(bytes, on_text, on_token, fixed, on_kept);
  }
  kept.sort();
  if (!last.empty()) {
    const std::size_t begin = begin_of(last);
    const std::size_t boundary =
        last_boundary(last, [&](std::size_t place) { return !kept.have_inside(begin + place); });
    if (boundary > 0) return begin + boundary;
  }
  while (!sure.empty() && kept.have_inside(sure.back())) sure.pop_back();
  return sure.empty() ? 0 : sure.back();
}

std::size_t HuggingFaceTokenizer::last_boundary(std::string_view text,
                                                const MayBeCut& may_be_cut) const {
  if (!std::holds_alternative<WordPiece>(encoding_)) return last_split(text, may_be_cut);
  std::size_t space = text.find_last_of(kAsciiSpaces);
  while (space != std::string_view::npos && space > 0) {
    if (may_be_cut(space)) return space;
    space = text.find_last_of(kAsciiSpaces, space - 1);
  }
  return 0;
}

std::size_t HuggingFaceTokenizer::last_split(std::string_view text,
                                             const MayBeCut& may_be_cut) const {
  if (splits_.empty()) return 0;
  // What comes before such a character is normalised alike whatever follows, but the character may
  // change, so the text ends before it.
  if (!normalizers_.empty()) {
    const auto last = std::find_if(text.rbegin(), text.rend(), stays_in_text);
    if (last == text.rend()) return 0;
    text = text.substr(0, static_cast<std::size_t>(text.rend() - last) - 1);
  }
  const std::string whole = normalised_text(text);
  SplitBoundaries boundaries(splits_.front(), whole);
  const std::vector<std::size_t>& places = boundaries.places();
  int tries = 16;  // more often than not the first one or two hold
  if (whole == text) {
    for (auto place = places.rbegin(); place != places.rend() && tries > 0; ++place) {
      if (!may_be_cut(*place)) continue;
      if (boundaries.holds(*place)) return *place;
      --tries;
    }
    return 0;
  }
  // This goes backwards from the end. `place` is that of each ASCII character in the normalised
  // text.
  std::size_t place = whole.size(), end = text.size();
  for (std::size_t at = text.size(); at-- > 1 && tries > 0;) {
    if (!stays_in_text(text[at])) continue;
    place -= normalised_text(text.substr(at, end - at)).size();
    end = at;
    if (!may_be_cut(at) || !std::ranges::binary_search(places, place)) continue;
    if (boundaries.holds(place)) return at;
    --tries;
  }
  return 0;
}

}  // namespace trireme
