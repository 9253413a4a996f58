#include "io/tokenizers/byte_pair_encoding.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

#include "io/tokenizers/decoder.h"
#include "io/tokenizers/unicode_text.h"

namespace trireme {
namespace {

// The characters that words begin with in most models; a text is cut before no other.
constexpr std::array<char32_t, 3> kWordBegins = {U' ', U'\n', 0x2581};

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

// A part of a word that is one token so far. Parts are a linked list.
struct Part {
  std::int32_t token;
  std::int64_t previous, next;  // -1: none
};
constexpr std::int32_t kGone = -1;  // merged into the part before it

struct Candidate {
  std::int32_t rank;
  std::int64_t at;  // of the left part
  std::int32_t left, right;
};
// Orders a heap whose front is the least rank, of equal ones the leftmost.
bool comes_later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

}  // namespace

BytePairEncoding::BytePairEncoding(const TokenizerFile& file, std::int32_t end_of_text,
                                   const std::string& origin)
    : tokens_(file.tokens), model_(std::get<TokenizerFile::BytePairs>(file.model)) {
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format("{}: {}", origin, why));
  };
  if (model_.unknown == end_of_text) {
    refuse(fmt::format("'{}' stands for unknown characters, so it cannot end texts",
                       shown(tokens_[static_cast<std::size_t>(end_of_text)])));
  }
  std::vector<bool> is_only_added(tokens_.size());
  for (const TokenizerFile::AddedToken& token : file.added) {
    is_only_added[static_cast<std::size_t>(token.token)] = token.is_only_added;
  }
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    std::string bytes;
    if (is_only_added[i] || std::cmp_equal(i, end_of_text)) continue;
    if (model_.is_byte_level && !read_visible_bytes(tokens_[i], bytes)) continue;
    if (model_.is_byte_level) tokens_[i] = std::move(bytes);
    if (!tokens_[i].empty()) words_.emplace(tokens_[i], static_cast<std::int32_t>(i));
  }
  find_bytes(origin);
  merges_.reserve(model_.merges.size());
  for (std::size_t i = 0; i < model_.merges.size(); ++i) {
    const auto [left, right] = model_.merges[i];
    if (model_.merged[i] == end_of_text) {
      refuse(fmt::format("the token '{}' would end texts, but a merge makes it",
                         shown(file.tokens[static_cast<std::size_t>(end_of_text)])));
    }
    merges_[key_of(left, right)] = {
        model_.ranks.empty() ? static_cast<std::int32_t>(i) : model_.ranks[i], model_.merged[i]};
  }
  model_.merges = {};
  model_.merged = {};
  model_.ranks = {};
  std::vector<std::int32_t> tokens;
  for (const auto& [word, token] : words_) {
    find_pairs(word);
    tokens.clear();
    if (!model_.ignores_merges) merge_word(word, tokens);
    if (model_.ignores_merges || (tokens.size() == 1 && tokens.front() == token)) {
      whole_words_.emplace(word, token);
    }
  }
}

void BytePairEncoding::find_bytes(const std::string& origin) {
  byte_token_.fill(-1);
  has_bytes_ = model_.is_byte_level || model_.has_byte_fallback;
  for (std::size_t byte = 0; byte < byte_token_.size() && has_bytes_; ++byte) {
    const auto character = static_cast<char>(byte);
    const auto found =
        words_.find(model_.is_byte_level ? std::string(1, character) : name_of_byte(character));
    if (found != words_.end()) {
      byte_token_[byte] = found->second;
    } else if (model_.is_byte_level) {
      throw DataError(fmt::format("{}: its BPE has no token for the byte {:#04x}", origin, byte));
    }
  }
  if (std::ranges::find(byte_token_, -1) != byte_token_.end()) has_bytes_ = false;
}

// Notes what comes before each character that words may begin with.
void BytePairEncoding::find_pairs(std::string_view word) {
  const auto add = [&](char32_t before, char32_t after) {
    if (std::ranges::find(kWordBegins, after) != kWordBegins.end()) {
      pairs_.insert(key_of(static_cast<std::int32_t>(before), static_cast<std::int32_t>(after)));
    }
  };
  if (model_.is_byte_level) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      add(static_cast<unsigned char>(word[i - 1]), static_cast<unsigned char>(word[i]));
    }
    return;
  }
  char32_t last = 0;
  for_each_character(word, [&](char32_t c, std::string_view) {
    add(last, c);
    last = c;
  });
}

bool BytePairEncoding::may_part(std::string_view before, std::string_view after) const {
  if (model_.ignores_merges) return false;
  const bool is_byte_level = model_.is_byte_level;
  const char32_t left = is_byte_level
                            ? static_cast<unsigned char>(before.back())
                            : first_character(before.substr(last_character_begin(before)));
  const char32_t right =
      is_byte_level ? static_cast<unsigned char>(after.front()) : first_character(after);
  if (std::ranges::find(kWordBegins, right) == kWordBegins.end()) return false;
  // Unknown characters beside each other may be one token, or none, so that their neighbours meet.
  if (!has_bytes_ && !model_.unknown &&
      !words_.contains(before.substr(last_character_begin(before)))) {
    return false;
  }
  const std::string_view known = after.substr(0, is_byte_level ? 1 : utf8_length(after));
  return words_.contains(known) && !pairs_.contains(key_of(static_cast<std::int32_t>(left),
                                                           static_cast<std::int32_t>(right)));
}

std::size_t BytePairEncoding::unit_length(std::string_view word) const {
  if (model_.is_byte_level || model_.ignores_merges) return word.size();
  for (std::size_t at = word.find(kSpaceMark, 1); at != std::string_view::npos;
       at = word.find(kSpaceMark, at + 1)) {
    if (may_part(word.substr(0, at), word.substr(at))) return at;
  }
  return word.size();
}

void BytePairEncoding::encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  const auto whole = whole_words_.find(word);
  if (whole != whole_words_.end()) {
    tokens.push_back(whole->second);
  } else {
    merge_word(word, tokens);
  }
}

const BytePairEncoding::Merge* BytePairEncoding::merge_of(std::int32_t left,
                                                          std::int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// The tokens that a word is before any merge.
void BytePairEncoding::add_characters(std::string_view word,
                                      std::vector<std::int32_t>& tokens) const {
  if (model_.is_byte_level) {
    for (const char byte : word) tokens.push_back(token_of_byte(byte));
    return;
  }
  bool has_unknown = false;  // whose token is not yet written
  const auto flush = [&] {
    if (has_unknown) tokens.push_back(*model_.unknown);
    has_unknown = false;
  };
  for_each_character(word, [&](char32_t, std::string_view character) {
    const auto known = words_.find(character);
    if (known != words_.end()) {
      flush();
      tokens.push_back(known->second);
      return;
    }
    const bool has_all = model_.has_byte_fallback && std::ranges::all_of(character, [&](char byte) {
                           return token_of_byte(byte) >= 0;
                         });
    if (has_all) {
      for (const char byte : character) tokens.push_back(token_of_byte(byte));
    } else if (model_.unknown) {
      if (!model_.fuses_unknown) flush();
      has_unknown = true;
    }
  });
  flush();
}

// A heap of what could merge: words may be long, and a search for the least at each merge would
// take the square of their length.
void BytePairEncoding::merge_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  std::vector<std::int32_t> characters;
  characters.reserve(word.size());
  add_characters(word, characters);
  const std::int64_t count = std::ssize(characters);
  std::vector<Part> parts(characters.size());
  std::vector<Candidate> heap;
  const auto consider = [&](std::int64_t at) {
    const Part& left = parts[static_cast<std::size_t>(at)];
    if (left.next < 0) return;
    const Part& right = parts[static_cast<std::size_t>(left.next)];
    if (const Merge* merge = merge_of(left.token, right.token)) {
      heap.push_back({merge->rank, at, left.token, right.token});
      std::push_heap(heap.begin(), heap.end(), comes_later);
    }
  };
  for (std::int64_t i = 0; i < count; ++i) {
    parts[static_cast<std::size_t>(i)] = {characters[static_cast<std::size_t>(i)], i - 1,
                                          i + 1 < count ? i + 1 : -1};
  }
  for (std::int64_t i = 0; i < count; ++i) consider(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Candidate candidate = heap.back();
    heap.pop_back();
    Part& left = parts[static_cast<std::size_t>(candidate.at)];
    if (left.token != candidate.left || left.next < 0) continue;  // merged since
    Part& right = parts[static_cast<std::size_t>(left.next)];
    if (right.token != candidate.right) continue;
    left.token = merge_of(candidate.left, candidate.right)->token;
    right.token = kGone;
    left.next = right.next;
    if (left.next >= 0) parts[static_cast<std::size_t>(left.next)].previous = candidate.at;
    if (left.previous >= 0) consider(left.previous);
    consider(candidate.at);
  }
  for (const Part& part : parts) {
    if (part.token != kGone) tokens.push_back(part.token);
  }
}

}  // namespace trireme
