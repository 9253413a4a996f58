// Patterns of names, as a shell has them for files: "blocks.*.norm?.weight".
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

// `*` stands for any characters, `?` for one, `[a-c0]` for one of these, `[!a]` for another one; a
// backslash takes its meaning from the character behind it (POSIX fnmatch). A dot is a character
// like any other.
class NamePatterns {
 public:
  NamePatterns() = default;
  explicit NamePatterns(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}
  // Reads patterns between commas. Blanks around a pattern are none of it.
  static NamePatterns of_list(std::string_view list);

  bool empty() const { return patterns_.empty(); }
  bool has_empty_pattern() const;
  const std::vector<std::string>& patterns() const { return patterns_; }
  bool match(std::string_view name) const { return first_match(name).has_value(); }
  // The number of the first pattern that the name matches.
  std::optional<std::size_t> first_match(std::string_view name) const;
  // Returns the patterns that none of the names match.
  std::vector<std::string> without_match(std::span<const std::string> names) const;

  bool operator==(const NamePatterns&) const = default;

 private:
  std::vector<std::string> patterns_;
};

}  // namespace trireme
