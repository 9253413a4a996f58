#include <fmt/format.h>

#include "cli/program_description.h"

namespace trireme::cli {
namespace {

// Puts a text in single quotes for a shell.
std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::vector<std::string> flags_of(const OptionDescription& option) {
  std::vector<std::string> flags{"--" + option.name};
  for (const std::string& alias : option.aliases) flags.push_back("--" + alias);
  return flags;
}

// Returns one "COMMAND:--flag) ..." entry of a case statement. It lists what may follow the flag.
std::string value_case(const std::string& command, const OptionDescription& option) {
  std::vector<std::string> patterns;
  for (const std::string& flag : flags_of(option)) patterns.push_back(command + ":" + flag);
  const std::vector<std::string> words = value_words(option);
  const std::string kind = takes_text(option) ? "kind=file" : "kind=value";
  return fmt::format(
      "    {}) {} ;;\n", fmt::join(patterns, "|"),
      words.empty() ? kind
                    : "kind=value words=" + shell_quoted(fmt::format("{}", fmt::join(words, " "))));
}

constexpr const char* kHead = R"(# bash completion of trireme; written by `trireme completion bash`.
_trireme() {
  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} flag='' kind='' words=''
  local flags='' arguments=''
  COMPREPLY=()
  # "--flag=value" comes as three words, "--flag value" as two.
  if ((COMP_CWORD > 2)); then
    flag=${COMP_WORDS[COMP_CWORD - 1]}
    if [[ $flag == = ]]; then
      flag=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $current == = ]]; then
      current=''
    fi
  fi
)";

constexpr const char* kTail = R"(  if ((COMP_CWORD == 1)); then
    words=$commands
  elif [[ $kind == file ]]; then
    # An empty reply: readline completes names of files, as it does without us.
    return
  elif [[ $kind == '' && $current == -* ]]; then
    words=$flags
  elif [[ $kind == '' ]]; then
    if ((COMP_CWORD > 2)) || [[ -z $arguments ]]; then
      return
    fi
    words=$arguments
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ $kind == value && ${#COMPREPLY[@]} -eq 0 ]]; then
    compopt +o default 2> /dev/null  # a number: no name of a file
  fi
}
complete -o default -F _trireme trireme
)";

}  // namespace

std::string bash_completion(const std::vector<DescribedCommand>& commands) {
  std::string names = "--help --version", by_command, by_flag;
  for (const DescribedCommand& command : commands) {
    names += " " + command.name;
    std::string flags = "--help", arguments;
    for (const OptionDescription& option : merged(command.description.options)) {
      flags += fmt::format(" {}", fmt::join(flags_of(option), " "));
      by_flag += value_case(command.name, option);
    }
    if (command.description.positional) {
      arguments = fmt::format("{}", fmt::join(command.description.positional->first_choices, " "));
    }
    by_command += fmt::format("    {})\n      flags={}\n      arguments={}\n      ;;\n",
                              command.name, shell_quoted(flags), shell_quoted(arguments));
  }
  return fmt::format(
      "{}  local commands={}\n  case $command in\n{}  esac\n  case $command:$flag in\n{}  esac\n{}",
      kHead, shell_quoted(names), by_command, by_flag, kTail);
}

}  // namespace trireme::cli
