// The text of --help.
#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/options.h"

namespace trireme {
namespace {

constexpr std::size_t kIndent = 34, kWidth = 100;

// Writes `left`, then the words of `right` from column kIndent on, in lines of at most kWidth.
std::string two_columns(const std::string& left, const std::string& right) {
  std::string text, line = "  " + left;
  if (line.size() + 2 > kIndent) {
    text = line + '\n';
    line.clear();
  }
  line.resize(kIndent, ' ');
  bool line_has_words = false;
  for (std::size_t at = 0; at < right.size();) {
    const std::size_t end = std::min(right.find(' ', at), right.size());
    const std::string word = right.substr(at, end - at);
    at = end + 1;
    if (line_has_words && line.size() + 1 + word.size() > kWidth) {
      text += line + '\n';
      line.assign(kIndent, ' ');
      line_has_words = false;
    }
    line += (line_has_words ? " " : "") + word;
    line_has_words = true;
  }
  return text + line + '\n';
}

}  // namespace

std::string help_text(const CommandDescription& command) {
  std::string text = "usage: " + command.usage + "\n\n";
  if (command.positional) text += two_columns(command.positional->name, command.positional->help);
  text += two_columns("--help", "show this text");
  std::string heading;
  for (const OptionDescription& key : command.options) {
    const std::size_t dot = key.name.find('.');
    std::string own = dot == std::string::npos ? "" : key.name.substr(0, dot);
    if (!key.only_with.empty()) own += ", with " + key.only_with;
    if (own != heading) text += fmt::format("\n{}:\n", own);
    heading = own;
    std::string right = key.help;
    if (!key.choices.empty()) right += fmt::format(": {}", fmt::join(key.choices, ", "));
    const std::string unit = key.unit.empty() ? "" : key.unit + "; ";
    const std::string value = key.default_text.empty() ? "none" : key.default_text;
    right += fmt::format(" [{}default {}]", unit, value);
    for (const std::string& alias : key.aliases) right += fmt::format(" (also --{})", alias);
    text += two_columns(fmt::format("--{} {}", key.name, key.placeholder), right);
  }
  return text;
}

}  // namespace trireme
