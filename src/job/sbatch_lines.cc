// The #SBATCH lines of a script, as sbatch reads them.
#include <optional>

#include "trireme/job/job_script.h"

namespace trireme {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// Takes the next word of a line, without its quotes; nothing at the end and before a comment.
std::optional<std::string> take_word(std::string_view& line) {
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  if (line.empty() || line.front() == '#') return {};
  std::string word;
  char quote = 0;
  for (; !line.empty() && (quote != 0 || !is_blank(line.front())); line.remove_prefix(1)) {
    const char c = line.front();
    if (c == '\\' && line.size() > 1) {
      line.remove_prefix(1);
      word += line.front();
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      word += c;
    }
  }
  return word;
}

}  // namespace

std::vector<std::string> sbatch_options(std::string_view script) {
  constexpr std::string_view kMark = "#SBATCH";
  std::vector<std::string> options;
  while (!script.empty()) {
    const std::size_t end = script.find('\n');
    std::string_view line = script.substr(0, end);
    script.remove_prefix(end == std::string_view::npos ? script.size() : end + 1);
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) continue;
    if (line[begin] != '#') break;  // the first command
    if (!line.starts_with(kMark)) continue;
    line.remove_prefix(kMark.size());
    while (const auto word = take_word(line)) {
      // The parts of a heterogeneous job are apart in a script by this word, as arguments by ":".
      options.push_back(*word == "hetjob" || *word == "packjob" ? ":" : *word);
    }
  }
  return options;
}

}  // namespace trireme
