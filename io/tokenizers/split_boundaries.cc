#include "io/tokenizers/split_boundaries.h"

#include <algorithm>

#include "trireme/base/utf8.h"

namespace trireme {
namespace {

// Texts are cut near their ends, and all that is before need not be matched again.
constexpr std::size_t kTailBytes = std::size_t{16} << 10;

std::size_t head_of(std::string_view text) {
  std::size_t head = text.size() - std::min(text.size(), kTailBytes);
  while (head > 0 && continues_character(text[head])) --head;
  return head;
}

}  // namespace

SplitBoundaries::SplitBoundaries(const SplitPattern& pattern, std::string_view text, Which which)
    : text_(text), matcher_(pattern), head_(head_of(text)) {
  head_sure_ = find_bounds(text.substr(0, head_), 0);
  find_bounds(text, head_sure_);
  choose_places(which);
}

// Returns the end of the last match.
std::size_t SplitBoundaries::find_bounds(std::string_view text, std::size_t start) {
  while (start < text.size()) {
    const auto match = matcher_.find(text, start, true);
    if (match.begin == match.end) break;
    if (match.begin > start) {
      bounds_.push_back(match.begin);
      are_ends_.push_back(false);
    }
    bounds_.push_back(match.end);
    are_ends_.push_back(true);
    start = match.end;
  }
  return start;
}

// After the last end there may be a match or not.
void SplitBoundaries::choose_places(Which which) {
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    const bool is_last = i + 1 == bounds_.size();
    const bool match_follows = !are_ends_[i] || (!is_last && are_ends_[i + 1]);
    const bool other_follows = are_ends_[i] && !is_last && !are_ends_[i + 1];
    const bool divides = which == Which::kAll      ? true
                         : which == Which::kEnds   ? are_ends_[i]
                         : which == Which::kBegins ? match_follows
                                                   : !are_ends_[i] || other_follows;
    if (divides) places_.push_back(bounds_[i]);
  }
}

bool SplitBoundaries::holds(std::size_t place) {
  const std::string_view first = text_.substr(0, place);
  std::size_t start = place < head_ ? 0 : head_sure_;
  auto wanted = std::ranges::upper_bound(bounds_, start);
  while (start < place) {
    const auto match = matcher_.find(first, start);
    for (const std::size_t end : {match.begin, match.end}) {
      if (end == start) continue;
      if (end != *wanted++) return false;
      start = end;
    }
  }
  return true;
}

}  // namespace trireme
