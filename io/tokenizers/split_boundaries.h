// Where a split pattern divides a text that goes on, and which of these places stay when the text
// is cut there.
#pragma once

#include <string_view>
#include <vector>

#include "io/tokenizers/split_pattern.h"

namespace trireme {

class SplitBoundaries {
 public:
  // Which places divide the text: all; where a match begins, or ends; or only those between a match
  // and what is no match.
  enum class Which { kAll, kBegins, kEnds, kClasses };

  // `text` must be valid UTF-8 and outlive this. Throws DataError, as holds() does, if a search
  // takes too many steps.
  SplitBoundaries(const SplitPattern& pattern, std::string_view text, Which which = Which::kAll);

  // Where a part ends whatever follows the text, in ascending order.
  const std::vector<std::size_t>& places() const { return places_; }

  // Whether the text up to `place`, one of places(), is divided in the same way if it ends there.
  // The last place may not: \s+(?!\S) matches more if nothing follows.
  bool holds(std::size_t place);

 private:
  std::size_t find_bounds(std::string_view text, std::size_t start);
  void choose_places(Which which);

  std::string_view text_;
  SplitPattern::Matcher matcher_;
  std::vector<std::size_t> bounds_;  // where matches begin and end
  std::vector<bool> are_ends_;       // false: what is before is no match
  std::vector<std::size_t> places_;
  std::size_t head_;  // matches before head_sure_ depend on nothing from here on
  std::size_t head_sure_;
};

}  // namespace trireme
