#include "trireme/config/weighted_paths.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"

namespace trireme {

std::string read_value(std::string_view text, std::vector<WeightedPath>& value, const Limit&) {
  std::vector<WeightedPath> paths;
  std::size_t at = 0;
  // Returns the text up to one of `ends` or the end, without the backslashes.
  const auto component = [&](std::string_view ends) {
    std::string part;
    for (; at < text.size() && ends.find(text[at]) == std::string_view::npos; ++at) {
      if (text[at] == '\\' && at + 1 < text.size()) ++at;
      part += text[at];
    }
    return part;
  };
  while (at < text.size()) {
    WeightedPath entry{component(",=")};
    if (entry.path.empty()) return "holds an empty path";
    if (at < text.size() && text[at] == '=') {
      ++at;
      const std::string written = component(",");
      double weight = 1.0;
      if (const std::string problem = read_value(written, weight, above(0)); !problem.empty()) {
        return fmt::format("holds the weight '{}', which {}", shown(written), problem);
      }
      entry.weight = weight;
    }
    paths.push_back(std::move(entry));
    if (at < text.size() && ++at == text.size()) return "holds an empty path";
  }
  value = std::move(paths);
  return "";
}

std::string write_value(const std::vector<WeightedPath>& value) {
  std::string text;
  for (const WeightedPath& entry : value) {
    if (!text.empty()) text += ',';
    for (const char c : entry.path) {
      if (c == ',' || c == '=' || c == '\\') text += '\\';
      text += c;
    }
    if (entry.weight) text += fmt::format("={}", *entry.weight);
  }
  return text;
}

void refuse_weights(std::string_view key, const std::vector<WeightedPath>& paths) {
  for (const WeightedPath& path : paths) {
    if (!path.weight) continue;
    throw ConfigError(fmt::format(
        "{}: {} has the weight {}, but an evaluation takes each sample once: leave weights out",
        key, shown(path.path), *path.weight));
  }
}

}  // namespace trireme
