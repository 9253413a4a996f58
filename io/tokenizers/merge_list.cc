#include "io/tokenizers/merge_list.h"

#include <algorithm>
#include <utility>

#include "trireme/base/utf8.h"

namespace trireme {
namespace {

bool ends_as_it_begins(std::string_view text, std::size_t length) {
  return text.starts_with(text.substr(text.size() - length));
}

// Orders the places where a token may be cut in two. Its score is one, but a list of merges has an
// order. That matters where both of two merges could be done, and one takes from the other: in
// X Y Z where X Y and Y Z are the same token. Then the left one goes first, which cuts the token
// after X; the other cuts it before Z, which is as long as X.
bool comes_first(std::string_view token, std::size_t a, std::size_t b) {
  const auto shorter = [&](std::size_t cut) { return std::min(cut, token.size() - cut); };
  if (shorter(a) != shorter(b)) return shorter(a) < shorter(b);
  if (a == b) return false;
  const std::size_t less = shorter(a), more = token.size() - less;
  const bool later_goes_first = ends_as_it_begins(token, less) && !ends_as_it_begins(token, more);
  return (a == more) == later_goes_first;
}

}  // namespace

Json merge_list(const std::vector<std::string_view>& tokens,
                const std::unordered_set<std::string_view>& parts) {
  Json merges = Json::array();
  std::vector<std::size_t> cuts;
  for (const std::string_view token : tokens) {
    cuts.clear();
    for (std::size_t cut = utf8_length(token); cut < token.size();
         cut += utf8_length(token.substr(cut))) {
      if (parts.contains(token.substr(0, cut)) && parts.contains(token.substr(cut))) {
        cuts.push_back(cut);
      }
    }
    std::ranges::sort(cuts, [&](std::size_t a, std::size_t b) { return comes_first(token, a, b); });
    for (const std::size_t cut : cuts) {
      merges.push_back(Json::array({token.substr(0, cut), token.substr(cut)}));
    }
  }
  return merges;
}

}  // namespace trireme
