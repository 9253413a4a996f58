#include "trireme/base/name_patterns.h"

#include <algorithm>
#include <iterator>

#include <fnmatch.h>

#include "trireme/base/text.h"

namespace trireme {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::string without_blanks(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

}  // namespace

NamePatterns NamePatterns::of_list(std::string_view list) {
  std::vector<std::string> patterns = split_list(list);
  std::ranges::transform(patterns, patterns.begin(), without_blanks);
  return NamePatterns(std::move(patterns));
}

bool NamePatterns::has_empty_pattern() const {
  return std::ranges::find(patterns_, "") != patterns_.end();
}

std::optional<std::size_t> NamePatterns::first_match(std::string_view name) const {
  const std::string text(name);
  const auto found = std::ranges::find_if(
      patterns_, [&](const std::string& pattern) { return matches(pattern, text); });
  if (found == patterns_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - patterns_.begin());
}

std::vector<std::string> NamePatterns::without_match(std::span<const std::string> names) const {
  std::vector<std::string> without;
  std::ranges::copy_if(patterns_, std::back_inserter(without), [&](const std::string& pattern) {
    return std::ranges::none_of(names,
                                [&](const std::string& name) { return matches(pattern, name); });
  });
  return without;
}

}  // namespace trireme
