#include "io/tokenizers/byte_pair_encoding.h"

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

namespace trireme {
namespace {

// Files spell each byte as a character that can be seen: itself where Latin 1 has such a one, and
// the others in turn from U+0100 on.
class VisibleBytes {
 public:
  VisibleBytes() {
    bytes_.fill(-1);
    char32_t other = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      bytes_[is_visible ? static_cast<std::size_t>(byte) : other++] = byte;
    }
  }

  // Returns nothing if a character stands for no byte.
  std::optional<std::string> read(std::string_view text) const {
    std::string bytes;
    while (!text.empty()) {
      const std::size_t length = utf8_length(text);
      const char32_t character = length == 0 ? 0 : first_character(text);
      if (character == 0 || character >= bytes_.size() || bytes_[character] < 0) return {};
      bytes += static_cast<char>(bytes_[character]);
      text.remove_prefix(length);
    }
    return bytes;
  }

 private:
  std::array<int, 0x144> bytes_{};
};

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
                                   const std::string& origin) {
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format("{}: {}", origin, why));
  };
  const auto& pairs = std::get<TokenizerFile::BytePairs>(file.model);
  std::vector<bool> is_only_added(file.tokens.size());
  for (const TokenizerFile::AddedToken& token : file.added) {
    is_only_added[static_cast<std::size_t>(token.token)] = token.is_only_added;
  }
  const VisibleBytes visible;
  byte_token_.fill(-1);
  token_bytes_ = file.tokens;
  std::vector<std::int32_t> words;
  for (std::size_t i = 0; i < token_bytes_.size(); ++i) {
    const auto token = static_cast<std::int32_t>(i);
    std::optional<std::string> bytes = visible.read(file.tokens[i]);
    if (!bytes || bytes->empty() || is_only_added[i]) continue;
    token_bytes_[i] = std::move(*bytes);
    if (token == end_of_text) continue;
    words.push_back(token);
    if (token_bytes_[i].size() == 1) {
      byte_token_[static_cast<unsigned char>(token_bytes_[i].front())] = token;
    }
  }
  for (std::size_t byte = 0; byte < byte_token_.size(); ++byte) {
    if (byte_token_[byte] < 0)
      refuse(fmt::format("its BPE has no token for the byte {:#04x}", byte));
  }
  merges_.reserve(pairs.merges.size());
  for (std::size_t i = 0; i < pairs.merges.size(); ++i) {
    const auto [left, right] = pairs.merges[i];
    if (pairs.merged[i] == end_of_text) {
      refuse(fmt::format("the token '{}' would end texts, but a merge makes it",
                         shown(file.tokens[static_cast<std::size_t>(end_of_text)])));
    }
    merges_[key_of(left, right)] = {static_cast<std::int32_t>(i), pairs.merged[i]};
  }
  std::vector<std::int32_t> tokens;
  for (const std::int32_t token : words) {
    const std::string& word = token_bytes_[static_cast<std::size_t>(token)];
    tokens.clear();
    if (!pairs.ignores_merges) merge_word(word, tokens);
    if (pairs.ignores_merges || (tokens.size() == 1 && tokens.front() == token)) {
      whole_words_.emplace(word, token);
    }
  }
}

std::vector<std::string> BytePairEncoding::token_bytes() const {
  return token_bytes_;
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

// A heap of what could merge: words may be long, and a search for the least at each merge would
// take the square of their length.
void BytePairEncoding::merge_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  std::vector<Part> parts(word.size());
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
  const std::int64_t count = std::ssize(word);
  for (std::int64_t i = 0; i < count; ++i) {
    parts[static_cast<std::size_t>(i)] = {token_of_byte(word[static_cast<std::size_t>(i)]), i - 1,
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
