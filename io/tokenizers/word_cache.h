// The tokens of all words seen so far in one call. Words repeat, and a look-up is many times faster
// than the model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme {

class WordCache {
 public:
  // Returns the tokens of `word`. `encode(word, tokens)` appends those of a new one. `word` must
  // outlive the cache, the result is good until the next call.
  template <class Encode>
  std::span<const std::int32_t> tokens(std::string_view word, Encode encode) {
    const auto [entry, is_new] = ranges_.try_emplace(word, Range{tokens_.size(), 0});
    if (is_new) {
      encode(word, tokens_);
      entry->second.end = tokens_.size();
    }
    return std::span(tokens_).subspan(entry->second.begin, entry->second.end - entry->second.begin);
  }

 private:
  struct Range {
    std::size_t begin, end;
  };
  std::unordered_map<std::string_view, Range> ranges_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace trireme
