#include "trireme/config/weighted_paths.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

// A part of a list between two commas, with its backslashes.
struct ListPart {
  std::string_view text;
  std::size_t weight_at = std::string_view::npos;  // of the last = that no backslash precedes
};

std::vector<ListPart> parts_of(std::string_view list) {
  std::vector<ListPart> parts(1);
  std::size_t begin = 0;
  for (std::size_t at = 0; at < list.size(); ++at) {
    if (list[at] == '\\') {
      ++at;
    } else if (list[at] == '=') {
      parts.back().weight_at = at - begin;
    } else if (list[at] == ',') {
      parts.back().text = list.substr(begin, at - begin);
      parts.emplace_back();
      begin = at + 1;
    }
  }
  parts.back().text = list.substr(begin);
  return parts;
}

std::string without_backslashes(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) ++at;
    result += text[at];
  }
  return result;
}

// Whether there is a file or folder of this name. What cannot be looked at is told when it is read.
bool is_there(const std::string& path) {
  try {
    return look_ahead(path, ExitStatus::kUsage).is_there();
  } catch (const Error&) {
    return false;
  }
}

// Reads "PATH" or "PATH=WEIGHT". Returns what is wrong, or nothing. A path that exists as it is
// written is one, whatever it holds.
std::string read_entry(const ListPart& part, WeightedPath& entry) {
  entry = {without_backslashes(part.text), {}};
  if (entry.path.empty()) return "holds an empty path";
  if (part.weight_at == std::string_view::npos || is_there(entry.path)) return {};
  const std::string written = without_backslashes(part.text.substr(part.weight_at + 1));
  entry.path = without_backslashes(part.text.substr(0, part.weight_at));
  if (entry.path.empty()) return "holds an empty path";
  double weight = 1.0;
  if (const std::string problem = read_value(written, weight, above(0)); !problem.empty()) {
    return fmt::format(
        "holds the weight '{}', which {}; there is no file {}={}: a backslash before = or , keeps "
        "it "
        "in a path",
        shown(written), problem, shown(entry.path), shown(written));
  }
  entry.weight = weight;
  return {};
}

// Returns how many parts from `first` on are one path that exists, with the commas between them, if
// the first alone is none; otherwise 1.
std::size_t parts_of_path(const std::vector<ListPart>& parts, std::size_t first, ListPart& joined) {
  joined = parts[first];
  if (first + 1 == parts.size()) return 1;
  const auto exists = [](const ListPart& part) {
    return is_there(without_backslashes(part.text)) ||
           (part.weight_at != std::string_view::npos &&
            is_there(without_backslashes(part.text.substr(0, part.weight_at))));
  };
  if (exists(joined)) return 1;
  ListPart longer = joined;
  for (std::size_t last = first + 1; last < parts.size(); ++last) {
    const ListPart& next = parts[last];
    const std::size_t before = longer.text.size() + 1;
    longer.text = std::string_view(longer.text.data(), before + next.text.size());
    longer.weight_at =
        next.weight_at == std::string_view::npos ? std::string_view::npos : before + next.weight_at;
    if (!exists(longer)) continue;
    joined = longer;
    return last - first + 1;
  }
  return 1;
}

}  // namespace

std::string read_value(std::string_view text, std::vector<WeightedPath>& value, const Limit&) {
  std::vector<WeightedPath> paths;
  if (!text.empty()) {
    const std::vector<ListPart> parts = parts_of(text);
    for (std::size_t first = 0; first < parts.size();) {
      ListPart part;
      first += parts_of_path(parts, first, part);
      WeightedPath entry{};
      if (std::string problem = read_entry(part, entry); !problem.empty()) return problem;
      paths.push_back(std::move(entry));
    }
  }
  value = std::move(paths);
  return "";
}

std::string write_value(const std::vector<WeightedPath>& value) {
  std::string text;
  for (const WeightedPath& entry : value) {
    if (!text.empty()) text += ',';
    // A ~ or $ at the start would be expanded when the text is read again.
    if (entry.path.starts_with('~') || entry.path.starts_with('$')) text += '\\';
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
