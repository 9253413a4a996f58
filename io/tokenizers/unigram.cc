#include "io/tokenizers/unigram.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

#include "io/tokenizers/decoder.h"

namespace trireme {
namespace {

constexpr double kUnknownPenalty = 10.0;

}  // namespace

// The best way to cut a word's beginning.
struct Unigram::Best {
  double score = 0.0;
  std::int32_t token = 0;   // the last one
  std::int64_t begin = -1;  // where it begins; -1: no way is known yet
};

Unigram::Unigram(const TokenizerFile& file, std::int32_t end_of_text, const std::string& origin)
    : tokens_(file.tokens), model_(std::get<TokenizerFile::UnigramPieces>(file.model)) {
  if (model_.unknown == end_of_text) {
    throw DataError(fmt::format("{}: '{}' stands for unknown characters, so it cannot end texts",
                                origin, shown(tokens_[static_cast<std::size_t>(end_of_text)])));
  }
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < model_.scores.size(); ++i) {
    least = std::min(least, model_.scores[i]);
    const auto token = static_cast<std::int32_t>(i);
    if (token == end_of_text || tokens_[i].empty()) continue;
    numbers_.emplace(tokens_[i], token);
    sorted_.push_back(token);
  }
  unknown_score_ = least - kUnknownPenalty;
  has_bytes_ = model_.has_byte_fallback;
  for (std::size_t byte = 0; byte < byte_token_.size(); ++byte) {
    const auto found = numbers_.find(name_of_byte(static_cast<char>(byte)));
    byte_token_[byte] = found == numbers_.end() ? -1 : found->second;
    if (byte_token_[byte] < 0) has_bytes_ = false;
  }
  std::ranges::sort(sorted_, {}, [&](std::int32_t token) -> std::string_view {
    return tokens_[static_cast<std::size_t>(token)];
  });
  nodes_.emplace_back();
  build(0, 0, sorted_.size(), 0);
  sorted_ = {};
}

// Makes the children of a node, which stands for the first `depth` bytes of these sorted tokens.
void Unigram::build(std::uint32_t node, std::size_t begin, std::size_t end, std::size_t depth) {
  const auto text = [&](std::size_t i) -> const std::string& {
    return tokens_[static_cast<std::size_t>(sorted_[i])];
  };
  if (begin < end && text(begin).size() == depth) nodes_[node].token = sorted_[begin++];
  nodes_[node].first = static_cast<std::uint32_t>(edges_.size());
  std::vector<std::size_t> ends;
  for (std::size_t i = begin; i < end; i = ends.back()) {
    std::size_t next = i + 1;
    while (next < end && text(next)[depth] == text(i)[depth]) ++next;
    ends.push_back(next);
    edges_.push_back(
        {static_cast<unsigned char>(text(i)[depth]), static_cast<std::uint32_t>(nodes_.size())});
    nodes_.emplace_back();
  }
  nodes_[node].count = static_cast<std::uint32_t>(ends.size());
  const std::uint32_t first = nodes_[node].first;
  for (std::size_t i = 0; i < ends.size(); begin = ends[i++]) {
    build(edges_[first + i].node, begin, ends[i], depth + 1);
  }
}

const Unigram::Node* Unigram::child(const Node& node, char byte) const {
  const auto first = edges_.begin() + node.first;
  const auto last = first + node.count;
  const auto found =
      std::lower_bound(first, last, static_cast<unsigned char>(byte),
                       [](const Edge& edge, unsigned char wanted) { return edge.byte < wanted; });
  const bool is_found = found != last && found->byte == static_cast<unsigned char>(byte);
  return is_found ? &nodes_[found->node] : nullptr;
}

void Unigram::encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  std::vector<Best> best(word.size() + 1);
  for (std::size_t begin = 0; begin < word.size();) {
    const double score = best[begin].score;
    const std::size_t length = std::max<std::size_t>(utf8_length(word.substr(begin)), 1);
    const auto offer = [&](std::size_t end, std::int32_t token, double sum) {
      if (best[end].begin >= 0 && !(sum > best[end].score)) return;
      best[end] = {sum, token, static_cast<std::int64_t>(begin)};
    };
    bool has_character = false;
    const Node* node = nodes_.data();
    for (std::size_t end = begin; end < word.size();) {
      node = child(*node, word[end++]);
      if (!node) break;
      if (node->token < 0) continue;
      offer(end, node->token, model_.scores[static_cast<std::size_t>(node->token)] + score);
      if (end - begin == length) has_character = true;
    }
    if (!has_character) offer(begin + length, model_.unknown, unknown_score_ + score);
    begin += length;
  }
  struct Piece {
    std::size_t begin, end;
    std::int32_t token;
  };
  std::vector<Piece> pieces;  // from the end on; unknown ones beside each other are one
  for (std::size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<std::size_t>(best[end].begin);
    const bool joins = !pieces.empty() && pieces.back().token == model_.unknown &&
                       best[end].token == model_.unknown;
    if (joins) {
      pieces.back().begin = begin;
    } else {
      pieces.push_back({begin, end, best[end].token});
    }
    end = begin;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    if (piece->token == model_.unknown) {
      add_unknown(word.substr(piece->begin, piece->end - piece->begin), tokens);
    } else {
      tokens.push_back(piece->token);
    }
  }
}

void Unigram::add_unknown(std::string_view text, std::vector<std::int32_t>& tokens) const {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) {
    tokens.push_back(found->second);
    return;
  }
  const bool has_all = model_.has_byte_fallback && std::ranges::all_of(text, [&](char byte) {
                         return token_of_byte(byte) >= 0;
                       });
  if (!has_all) {
    tokens.push_back(model_.unknown);
    return;
  }
  for (const char byte : text) tokens.push_back(token_of_byte(byte));
}

}  // namespace trireme
