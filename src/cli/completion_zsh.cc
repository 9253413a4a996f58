#include <fmt/format.h>

#include "cli/program_description.h"

namespace trireme::cli {
namespace {

// Escapes a text for a specification of _arguments or _describe in single quotes. There colons and
// brackets separate fields.
std::string zsh_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') result += '\\';
    result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return result;
}

// Returns the "message:action" of a value.
std::string value_spec(const OptionDescription& option) {
  const std::string message = zsh_escaped(option.unit.empty() ? option.placeholder : option.unit);
  const std::vector<std::string> words = value_words(option);
  if (!words.empty()) return fmt::format("{}:({})", message, fmt::join(words, " "));
  return message + (takes_text(option) ? ":_files" : ": ");
}

std::string command_case(const DescribedCommand& command) {
  std::string text = fmt::format("    {})\n      _arguments \\\n", command.name);
  text += "        '--help[show all options]'";
  const auto add = [&](const std::string& name, const OptionDescription& option) {
    text += fmt::format(" \\\n        '--{}=[{}]:{}'", name, zsh_escaped(option.help),
                        value_spec(option));
  };
  for (const OptionDescription& option : merged(command.description.options)) {
    add(option.name, option);
    for (const std::string& alias : option.aliases) add(alias, option);
  }
  if (const auto& positional = command.description.positional) {
    const std::string name = zsh_escaped(positional->name);
    if (!positional->first_choices.empty()) {
      text += fmt::format(" \\\n        '1:what:({})'", fmt::join(positional->first_choices, " "));
    }
    text += fmt::format(" \\\n        '*:{}:_files'", name);
  }
  return text + "\n      ;;\n";
}

}  // namespace

std::string zsh_completion(const std::vector<DescribedCommand>& commands) {
  std::string names, cases;
  for (const DescribedCommand& command : commands) {
    names += fmt::format("    '{}:{}'\n", command.name, zsh_escaped(command.summary));
    cases += command_case(command);
  }
  return fmt::format(R"(#compdef trireme
# zsh completion of trireme; written by `trireme completion zsh`.
_trireme() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe -t commands 'trireme command' commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{}  esac
}}
if [[ $funcstack[1] == _trireme ]]; then
  _trireme "$@"
else
  compdef _trireme trireme  # read by `source`, not found through fpath
fi
)",
                     names, cases);
}

}  // namespace trireme::cli
