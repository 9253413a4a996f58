#include "io/tokenizers/huggingface_tokenizer.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

#include "io/tokenizers/split_boundaries.h"
#include "io/tokenizers/word_cache.h"

namespace trireme {
namespace {

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

// The added tokens of a name, or, if it is empty, the special ones that are known to end texts.
std::vector<TokenizerFile::AddedToken> ends_of(const TokenizerFile& file, std::string_view name) {
  std::vector<TokenizerFile::AddedToken> found;
  for (const auto& token : file.added) {
    const bool is_end = std::ranges::find(kEnds, token.text) != kEnds.end();
    if (name.empty() ? token.is_special && is_end : token.text == name) found.push_back(token);
  }
  // If that is not clear, the one that the post-processor puts after texts.
  if (name.empty() && found.size() != 1 && file.after.size() == 1) {
    const auto after = std::ranges::find_if(file.added, [&](const auto& token) {
      return token.is_special && token.text == file.after.front();
    });
    if (after != file.added.end()) return {*after};
  }
  return found;
}

std::int32_t end_of_text_of(const TokenizerFile& file, std::string_view name,
                            const std::string& origin, HuggingFaceTokenizer::EndBy by) {
  const std::vector<TokenizerFile::AddedToken> found = ends_of(file, name);
  if (found.size() == 1) return found.front().token;
  const bool is_flag = by == HuggingFaceTokenizer::EndBy::kUser;
  if (!name.empty()) {
    throw DataError(fmt::format(
        "{}: '{}' is none of its added tokens ({}), so it cannot end texts{}", origin, shown(name),
        names_of(file.added),
        is_flag ? "" : fmt::format(", as eos_token of the {} says", kTokenizerConfigName)));
  }
  const std::string way = is_flag
                              ? "--end-of-text TOKEN"
                              : fmt::format("eos_token of a {} beside it", kTokenizerConfigName);
  throw DataError(
      found.empty()
          ? fmt::format("{}: none of its special tokens is known to end texts: {} names one of its "
                        "added tokens ({})",
                        origin, way, names_of(file.added))
          : fmt::format("{}: several of its tokens may end texts ({}): {} names one", origin,
                        names_of(found), way));
}

AddedTokens added_tokens(const TokenizerFile& file, std::int32_t end_of_text, bool normalised,
                         const std::string& origin) {
  std::vector<AddedTokens::Token> tokens;
  for (const auto& token : file.added) {
    if (token.is_normalized != normalised) continue;
    const bool stays_text = token.is_special || token.token == end_of_text;
    std::string text =
        normalised ? file.normalizers.apply(token.text, TextPlace::kBegins) : token.text;
    if (text.empty()) {
      throw DataError(fmt::format("{}: the added token '{}' is nothing once it is normalised",
                                  origin, shown(token.text)));
    }
    tokens.push_back({std::move(text), stays_text ? -1 : token.token, token.is_single_word,
                      token.strips_left, token.strips_right});
  }
  return AddedTokens(std::move(tokens));
}

using Model = std::variant<BytePairEncoding, WordPiece, Unigram>;

Model model_of(const TokenizerFile& file, std::int32_t end_of_text, const std::string& origin) {
  if (std::holds_alternative<TokenizerFile::WordPieces>(file.model)) {
    return WordPiece(file, end_of_text, origin);
  }
  if (std::holds_alternative<TokenizerFile::UnigramPieces>(file.model)) {
    return Unigram(file, end_of_text, origin);
  }
  return BytePairEncoding(file, end_of_text, origin);
}

bool is_byte_level(const TokenizerFile& file) {
  const auto* pairs = std::get_if<TokenizerFile::BytePairs>(&file.model);
  return pairs && pairs->is_byte_level;
}

// The token of what a model does not know, where there is such.
std::optional<std::int32_t> unknown_token(const TokenizerFile& file) {
  if (const auto* words = std::get_if<TokenizerFile::WordPieces>(&file.model)) {
    return words->unknown;
  }
  if (const auto* pieces = std::get_if<TokenizerFile::UnigramPieces>(&file.model)) {
    return pieces->unknown;
  }
  if (is_byte_level(file)) return {};
  return std::get<TokenizerFile::BytePairs>(file.model).unknown;
}

// What tokens stand for, added ones as well.
std::vector<std::string> bytes_of_tokens(const Model& model, const TokenizerFile& file) {
  std::vector<std::string> bytes;
  if (const auto* words = std::get_if<WordPiece>(&model)) {
    bytes = words->token_texts();
  } else if (is_byte_level(file)) {
    bytes = std::get<BytePairEncoding>(model).token_bytes();
  } else {
    for (const std::string& token : file.tokens) bytes.push_back(file.decoder.bytes_of(token));
    return bytes;
  }
  for (const auto& token : file.added) bytes[static_cast<std::size_t>(token.token)] = token.text;
  return bytes;
}

void ignore(std::string_view) {}

// What other programs make of bytes that are not UTF-8.
std::string with_replacements(std::string_view bytes) {
  std::string made;
  while (!bytes.empty()) {
    const std::size_t length = utf8_length(bytes);
    made += length == 0 ? kReplacement : bytes.substr(0, length);
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return made;
}

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
  std::string kind;

  Parsed(std::string_view model, std::string_view name, const std::string& origin, EndBy end_by)
      : file(parse_tokenizer_file(model, origin)),
        end_of_text(end_of_text_of(file, name, origin, end_by)),
        kind(file.kind) {
    const auto own = ends_of(file, "");
    const bool is_own = own.size() == 1 && own.front().token == end_of_text;
    if (!name.empty() && (end_by == EndBy::kUser || !is_own)) kind += fmt::format(":{}", name);
  }
};

HuggingFaceTokenizer::HuggingFaceTokenizer(std::string model, std::string_view end_of_text,
                                           const std::string& origin, EndBy end_by)
    : HuggingFaceTokenizer(Parsed(model, end_of_text, origin, end_by), model, origin) {}

HuggingFaceTokenizer::HuggingFaceTokenizer(Parsed parsed, std::string model,
                                           const std::string& origin)
    : kind_(std::move(parsed.kind)),
      model_(std::move(model)),
      raw_added_(added_tokens(parsed.file, parsed.end_of_text, false, origin)),
      normalised_added_(added_tokens(parsed.file, parsed.end_of_text, true, origin)),
      encoding_(model_of(parsed.file, parsed.end_of_text, origin)) {
  std::vector<std::string> bytes = bytes_of_tokens(encoding_, parsed.file);
  SpecialTokens special_tokens;
  for (const auto& token : parsed.file.added) {
    const bool is_end = token.token == parsed.end_of_text;
    if (token.is_special || is_end) special_tokens.emplace(token.text, token.token);
  }
  if (const auto unknown = unknown_token(parsed.file)) {
    special_tokens.emplace(parsed.file.tokens[static_cast<std::size_t>(*unknown)], *unknown);
  }
  for (const auto& [name, token] : special_tokens) bytes[static_cast<std::size_t>(token)].clear();
  set_vocabulary(std::move(bytes), parsed.end_of_text, std::move(special_tokens));
  if (parsed.file.decoder.takes_space() && !is_byte_level(parsed.file)) set_leading_space();
  is_byte_level_ = is_byte_level(parsed.file);
  before_texts_ = std::move(parsed.file.before);
  normalizers_ = std::move(parsed.file.normalizers);
  pre_tokenizers_ = std::move(parsed.file.pre_tokenizers);
}

std::string HuggingFaceTokenizer::description() const {
  const std::string_view name = std::holds_alternative<WordPiece>(encoding_) ? "WordPiece"
                                : std::holds_alternative<Unigram>(encoding_) ? "Unigram"
                                : is_byte_level_                             ? "byte-level BPE"
                                                                             : "BPE";
  const std::string_view maker = kind_.starts_with("tiktoken") ? "tiktoken's"
                                 : kind_.starts_with("tekken") ? "Mistral's"
                                                               : "Hugging Face's";
  return fmt::format("{} {}, {} tokens", maker, name, vocabulary());
}

bool HuggingFaceTokenizer::has_bytes() const {
  if (const auto* pairs = std::get_if<BytePairEncoding>(&encoding_)) return pairs->has_bytes();
  const auto* unigram = std::get_if<Unigram>(&encoding_);
  return unigram && unigram->has_bytes();
}

template <class OnText, class OnByte>
void HuggingFaceTokenizer::divide(std::string_view bytes, OnText on_text, OnByte on_byte) const {
  std::size_t begin = 0, at = 0;
  while (at < bytes.size()) {
    if ((bytes[at] & 0x80) == 0) {
      ++at;
      continue;
    }
    const std::size_t length = utf8_length(bytes.substr(at));
    if (length == 0) {
      if (at > begin) on_text(bytes.substr(begin, at - begin));
      on_byte(bytes.substr(at, 1));
      begin = at + 1;
    }
    at += std::max<std::size_t>(length, 1);
  }
  if (at > begin) on_text(bytes.substr(begin));
}

// One call of encode().
class HuggingFaceTokenizer::Encoding {
 public:
  Encoding(const HuggingFaceTokenizer& tokenizer, std::vector<std::int32_t>& tokens)
      : own_(tokenizer), tokens_(tokens), division_(tokenizer.pre_tokenizers_) {}

  void add(std::string_view bytes, TextPlace place) {
    place_ = place;
    if (!own_.has_bytes()) {
      const bool is_text = [&] {
        bool is_valid = true;
        own_.divide(bytes, ignore, [&](std::string_view) { is_valid = false; });
        return is_valid;
      }();
      return add_text(is_text ? bytes : kept(with_replacements(bytes)));
    }
    own_.divide(
        bytes, [&](std::string_view text) { add_text(text); },
        [&](std::string_view byte) {
          tokens_.push_back(own_.token_of_byte(byte.front()));
          place_ = TextPlace::kGoesOn;
        });
  }

 private:
  std::string_view kept(std::string text) { return texts_.emplace_back(std::move(text)); }

  void add_token(std::int32_t token) {
    tokens_.push_back(token);
    place_ = TextPlace::kAfterToken;
  }

  void add_text(std::string_view text) {
    own_.raw_added_.divide(
        text, [&](std::string_view part) { add_part(part); },
        [&](std::int32_t token, std::string_view) { add_token(token); }, ignore);
  }

  void add_part(std::string_view raw) {
    const std::string_view text =
        own_.normalizers_.leave(raw) ? raw : kept(own_.normalizers_.apply(raw, place_));
    own_.normalised_added_.divide(
        text,
        [&](std::string_view part) {
          division_.divide(part, place_, on_word_);
          place_ = TextPlace::kAfterToken;
        },
        [&](std::int32_t token, std::string_view) { add_token(token); }, ignore);
    place_ = TextPlace::kAfterToken;
  }

  void encode_word(std::string_view word) {
    if (const auto* pairs = std::get_if<BytePairEncoding>(&own_.encoding_)) {
      while (!word.empty()) {
        const std::string_view unit = word.substr(0, pairs->unit_length(word));
        encode_unit(*pairs, unit);
        word.remove_prefix(unit.size());
      }
    } else if (const auto* pieces = std::get_if<WordPiece>(&own_.encoding_)) {
      encode_unit(*pieces, word);
    } else {
      encode_unit(std::get<Unigram>(own_.encoding_), word);
    }
  }

  template <class AnyModel>
  void encode_unit(const AnyModel& model, std::string_view unit) {
    const auto made = cache_.tokens(
        unit,
        [&](std::string_view word, std::vector<std::int32_t>& to) { model.encode_word(word, to); });
    tokens_.insert(tokens_.end(), made.begin(), made.end());
  }

  const HuggingFaceTokenizer& own_;
  std::vector<std::int32_t>& tokens_;
  PreTokenizers::Division division_;
  const PreTokenizers::Division::OnWord on_word_ = [this](std::string_view word) {
    encode_word(word);
  };
  TextPlace place_ = TextPlace::kBegins;  // of the text that comes next
  std::deque<std::string> texts_;         // what the cache's words are views of, besides the input
  WordCache cache_;
};

std::int32_t HuggingFaceTokenizer::token_of_byte(char byte) const {
  const auto* pairs = std::get_if<BytePairEncoding>(&encoding_);
  return pairs ? pairs->token_of_byte(byte) : std::get<Unigram>(encoding_).token_of_byte(byte);
}

void HuggingFaceTokenizer::add_tokens(std::string_view bytes, TextPart part,
                                      std::vector<std::int32_t>& tokens) const {
  Encoding(*this, tokens)
      .add(bytes, part == TextPart::kBegins ? TextPlace::kBegins : TextPlace::kGoesOn);
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
  bool has_strays = false;
  std::string_view beyond;  // what follows `last` of the same text
  const auto on_text = [&](std::string_view text) {
    const std::size_t begin = begin_of(text);
    fixed(text);
    if (begin >= usable || begin + text.size() <= usable) return;
    last = text.substr(0, usable - begin);
    beyond = text.substr(last.size());
  };
  // A text that begins after a token may be treated in another way than one that goes on.
  const bool change_beginnings =
      normalizers_.change_beginnings() || pre_tokenizers_.change_beginnings();
  const auto on_token = [&](std::int32_t, std::string_view part) {
    if (!change_beginnings) fixed(part);
  };
  const auto on_kept = [&](std::string_view part) {
    kept.add(begin_of(part), begin_of(part) + part.size());
  };
  const auto on_valid = [&](std::string_view valid) {
    raw_added_.divide(
        valid,
        [&](std::string_view part) {
          if (normalizers_.empty()) {
            normalised_added_.divide(part, on_text, on_token, on_kept);
          } else {
            on_text(part);
          }
        },
        on_token, on_kept);
  };
  if (cuts_at_spaces()) {
    on_valid(bytes);  // stray bytes are part of words
  } else {
    divide(bytes, on_valid, [&](std::string_view byte) {
      fixed(byte);
      has_strays = true;
    });
  }
  kept.sort();
  // A stray byte that goes on with the text changes what is found around it.
  const bool is_whole = has_bytes() || !has_strays;
  if (!is_whole) sure.clear();
  const auto may_be_cut = [&](std::size_t place) {
    if (place == 0 || kept.have_inside(place)) return false;
    if (!raw_added_.strip_left() && !normalised_added_.strip_left()) return true;
    const std::string_view before = bytes.substr(0, place);
    return !is_white_space(first_character(before.substr(last_character_begin(before))));
  };
  if (!last.empty()) {
    const std::size_t begin = begin_of(last);
    const std::size_t boundary = last_boundary(
        last, beyond, is_whole, [&](std::size_t place) { return may_be_cut(begin + place); });
    if (boundary > 0) return begin + boundary;
  }
  while (!sure.empty() && kept.have_inside(sure.back())) sure.pop_back();
  return sure.empty() ? 0 : sure.back();
}

bool HuggingFaceTokenizer::cuts_at_spaces() const {
  return pre_tokenizers_.has_bert_words() && normalizers_.keep_spaces() &&
         (normalizers_.empty() || normalised_added_.empty()) &&
         std::holds_alternative<WordPiece>(encoding_);
}

std::size_t HuggingFaceTokenizer::last_boundary(std::string_view text, std::string_view beyond,
                                                bool is_whole, const MayBeCut& may_be_cut) const {
  if (!cuts_at_spaces()) {
    const std::size_t place = is_whole ? last_split(text, beyond, may_be_cut) : 0;
    return place > 0 ? place : last_space(text, beyond, may_be_cut);
  }
  std::size_t space = text.find_last_of(kAsciiSpaces);
  while (space != std::string_view::npos && space > 0) {
    if (may_be_cut(space)) return space;
    space = text.find_last_of(kAsciiSpaces, space - 1);
  }
  return 0;
}

std::size_t HuggingFaceTokenizer::last_split(std::string_view text, std::string_view beyond,
                                             const MayBeCut& may_be_cut) const {
  const PreTokenizers::PatternSplit* split = pre_tokenizers_.leading_split();
  if (!split || !normalizers_.allow_parts()) return 0;
  const std::string_view all(text.data(), text.size() + beyond.size());
  // What comes before such a character is normalised alike whatever follows, but the character may
  // change, so the text ends before it.
  if (!normalizers_.empty()) {
    const auto found = std::find_if(text.rbegin(), text.rend(), stays_in_text);
    if (found == text.rend()) return 0;
    text = text.substr(0, static_cast<std::size_t>(text.rend() - found) - 1);
  }
  const std::string whole = normalizers_.apply(text, TextPlace::kGoesOn);
  KeptParts kept;
  std::string_view part = whole;  // the last one without an added token
  std::string more;
  if (!normalizers_.empty() && !normalised_added_.empty()) {
    more = whole + normalizers_.apply(all.substr(text.size()), TextPlace::kGoesOn);
    part = {};
    const auto begin_of = [&](std::string_view found) {
      return static_cast<std::size_t>(found.data() - more.data());
    };
    normalised_added_.divide(
        more,
        [&](std::string_view found) {
          const std::size_t begin = begin_of(found);
          if (begin < whole.size()) {
            part = std::string_view(whole).substr(begin, found.size());
          }
        },
        [](std::int32_t, std::string_view) {},
        [&](std::string_view found) { kept.add(begin_of(found), begin_of(found) + found.size()); });
    kept.sort();
    if (part.empty()) return 0;
  }
  const std::size_t first = pre_tokenizers_.last_part(part);
  const std::size_t origin = static_cast<std::size_t>(part.data() - whole.data()) + first;
  SplitBoundaries boundaries(split->pattern, part.substr(first), split->divided_at());
  const std::vector<std::size_t>& places = boundaries.places();
  // The same with the space that this text may get, if it begins here.
  std::optional<SplitBoundaries> prefixed;
  const std::string spaced = fmt::format(" {}", part);
  if (pre_tokenizers_.has_leading_prefix() && !part.starts_with(' ')) {
    prefixed.emplace(split->pattern, spaced);
  }
  int tries = 16;  // more often than not the first one or two hold
  // Whether the text can be cut at a place, which is `place` in normal form.
  const auto holds = [&](std::size_t at, std::size_t place) {
    if (!may_be_cut(at) || kept.have_inside(place)) return false;
    if (place == origin) return first > 0;
    if (place < origin || !std::ranges::binary_search(places, place - origin)) return false;
    --tries;
    const bool is_other =
        prefixed && !(std::ranges::binary_search(prefixed->places(), place - origin + 1) &&
                      prefixed->holds(place - origin + 1));
    return !is_other && boundaries.holds(place - origin);
  };
  if (whole == text) {
    for (auto place = places.rbegin(); place != places.rend() && tries > 0; ++place) {
      if (holds(origin + *place, origin + *place)) return origin + *place;
    }
    return holds(origin, origin) ? origin : 0;
  }
  // This goes backwards from the end. `place` is that of each ASCII character in the normalised
  // text.
  std::size_t place = whole.size(), end = text.size();
  for (std::size_t at = text.size(); at-- > 1 && tries > 0 && place >= origin;) {
    if (!stays_in_text(text[at])) continue;
    place -= normalizers_.apply(text.substr(at, end - at), TextPlace::kGoesOn).size();
    end = at;
    if (holds(at, place)) return at;
  }
  return 0;
}

std::size_t HuggingFaceTokenizer::last_space(std::string_view text, std::string_view beyond,
                                             const MayBeCut& may_be_cut) const {
  constexpr std::size_t kContext = 256;  // characters are normalised with those before them
  const std::string_view all(text.data(), text.size() + beyond.size());
  int tries = 64;
  for (std::size_t at = text.size(); at-- > 1 && tries > 0;) {
    if (text[at] != ' ' && text[at] != '\n') continue;
    const std::size_t last = last_character_begin(text.substr(0, at));
    const char32_t before = first_character(text.substr(last));
    const bool is_plain = is_letter(before) || is_numeric(before) || is_punctuation(before);
    if (!is_plain || !may_be_cut(at) ||
        !are_two_graphemes(before, static_cast<char32_t>(text[at]))) {
      continue;
    }
    --tries;
    const std::size_t word = all.find_first_not_of(" \n\r\t", at);
    if (word == std::string_view::npos) continue;
    std::size_t begin = at - std::min(at, kContext);
    while (continues_character(text[begin])) ++begin;
    std::string left(text.substr(begin, at - begin));
    std::string right(all.substr(at, word - at + utf8_length(all.substr(word))));
    if (!normalizers_.normalise_sides(left, right) || normalised_added_.may_span(left, right)) {
      continue;
    }
    const PreTokenizers::Cut cut = pre_tokenizers_.cut(left, right);
    if (cut == PreTokenizers::Cut::kBetweenWords) return at;
    const auto* pairs = std::get_if<BytePairEncoding>(&encoding_);
    if (cut == PreTokenizers::Cut::kInWord && pairs && pairs->may_part(left, right)) return at;
  }
  return 0;
}

}  // namespace trireme
