#include "topology/fabric/slurm_lines.h"

#include <algorithm>
#include <cctype>

namespace trireme {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";

bool is_blank_in_slurm(char c) {
  return kBlanks.find(c) != std::string_view::npos;
}

void skip_blanks(std::string_view& text) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlanks)));
}

// Whether `text` ends with an odd number of backslashes.
bool ends_escaped(std::string_view text) {
  const std::size_t last = text.find_last_not_of('\\');
  const std::size_t count = last == std::string_view::npos ? text.size() : text.size() - last - 1;
  return count % 2 == 1;
}

std::string_view without_comment(std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (!ends_escaped(line.substr(0, at))) return line.substr(0, at);
  }
  return line;
}

std::string without_escapes(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && ++i == text.size()) break;
    result += text[i];
  }
  return result;
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string_view take_key(std::string_view& text) {
  const auto end = std::ranges::find_if_not(
      text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
  const std::string_view key = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(key.size());
  return key;
}

// Takes "KEY =", blanks around included; empty if there is none.
std::string_view take_key_and_equals(std::string_view& text) {
  std::string_view rest = text;
  const std::string_view key = take_key(rest);
  skip_blanks(rest);
  // An operator, as in "+=".
  if (!rest.empty() && std::string_view("-*+/").find(rest.front()) != std::string_view::npos) {
    rest.remove_prefix(1);
  }
  if (key.empty() || rest.empty() || rest.front() != '=') return {};
  rest.remove_prefix(1);
  text = rest;
  return key;
}

std::string_view take_value(std::string_view& text) {
  std::string_view next = text;
  skip_blanks(next);
  std::string_view after = next;
  // The controller writes "Nodes= Switches=s1" where there are none.
  if (next.size() < text.size() && !take_key_and_equals(after).empty()) return {};
  text = next;
  if (text.starts_with('"')) {
    const std::size_t end = text.find('"', 1);
    const bool is_whole = end != std::string_view::npos &&
                          (end + 1 == text.size() || is_blank_in_slurm(text[end + 1]));
    if (is_whole) {
      const std::string_view value = text.substr(1, end - 1);
      text.remove_prefix(end + 1);
      return value;
    }
  }
  const std::string_view value = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(value.size());
  return value;
}

}  // namespace

void for_each_slurm_line(std::string_view text,
                         const std::function<void(const std::string&, int)>& visit) {
  std::string joined;
  int number = 0, first = 1;
  while (!text.empty()) {
    ++number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = without_comment(line);
    line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
    const bool goes_on = ends_escaped(line);
    if (goes_on) line.remove_suffix(1);
    joined += line;
    if (goes_on && !text.empty()) continue;
    if (joined.find_first_not_of(kBlanks) != std::string::npos) {
      visit(without_escapes(joined), first);
    }
    joined.clear();
    first = number + 1;
  }
}

std::optional<IncludeLine> included_in(std::string_view line) {
  constexpr std::string_view kWord = "include";
  skip_blanks(line);
  if (lower_case(line.substr(0, kWord.size())) != kWord) return {};
  line.remove_prefix(kWord.size());
  if (line.empty() || !is_blank_in_slurm(line.front())) return {};
  skip_blanks(line);
  IncludeLine result{.file = std::string(line.substr(0, line.find_first_of(kBlanks))), .rest = {}};
  line.remove_prefix(result.file.size());
  skip_blanks(line);
  result.rest = line;
  return result;
}

SlurmPairs slurm_pairs_of(std::string_view line) {
  SlurmPairs result;
  skip_blanks(line);
  while (!line.empty()) {
    std::string_view rest = line;
    const std::string_view key = take_key_and_equals(rest);
    if (key.empty()) break;
    const std::string_view value = take_value(rest);
    result.pairs.push_back({lower_case(key), std::string(value)});
    line = rest;
    skip_blanks(line);
  }
  result.rest = line;
  return result;
}

}  // namespace trireme
