#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "trireme/base/options.h"

#include "other_names.h"

namespace trireme {
namespace {

char small(char letter) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
}

// Returns the number of insertions, deletions and replacements that turn one text into the other
// (Levenshtein), where capital letters are small ones.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (small(from[i]) != small(to[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 100;
  if (name.size() > kLongest) return {};
  if (auto ours = entry_of_other_name(name, known)) return ours;
  std::optional<std::string> nearest;
  std::size_t least = name.size() < 4 ? 2 : 3;  // with this many edits or more, it is another word
  const auto consider = [&](std::string_view word, const std::string& entry) {
    const std::size_t distance = edit_distance(name, word);
    if (distance < least && distance < name.size()) {
      least = distance;
      nearest = entry;
    }
  };
  for (const std::string& entry : known) {
    consider(entry, entry);
    const std::size_t dot = entry.rfind('.');
    if (dot != std::string::npos && name.find('.') == std::string_view::npos) {
      consider(std::string_view(entry).substr(dot + 1), entry);
    }
  }
  // Accepts a right key in the wrong section: "train.steps" for "run.steps".
  const std::size_t dot = name.rfind('.');
  if (!nearest && dot != std::string_view::npos) {
    for (const std::string& entry : known) {
      if (entry.ends_with(name.substr(dot))) return entry;
    }
  }
  return nearest;
}

}  // namespace trireme
