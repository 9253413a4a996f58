// `trireme completion`: writes the completions of the shells and the manual page.
#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

#include "cli/commands.h"
#include "cli/program_description.h"

namespace trireme::cli {
namespace {

std::vector<DescribedCommand> described_commands() {
  std::vector<DescribedCommand> result;
  for (const Command& command : commands()) {
    Work work = command.parse({"--help"});
    TRIREME_CHECK(work.described, fmt::format("{} --help is not from show_help", command.name));
    result.push_back(
        {std::string(command.name), std::string(command.summary), std::move(*work.described)});
  }
  return result;
}

struct Format {
  std::string name;
  std::string (*write)(const std::vector<DescribedCommand>&);
};

const std::vector<Format>& formats() {
  static const std::vector<Format> table = {
      {"bash", bash_completion}, {"zsh", zsh_completion}, {"man", manual_page}};
  return table;
}

}  // namespace

std::vector<std::string> value_words(const OptionDescription& option) {
  std::vector<std::string> words = option.choices;
  if (option.placeholder == "true|false") words = {"true", "false"};
  if (!words.empty() && option.default_text == "auto") words.emplace_back("auto");
  return words;
}

std::vector<OptionDescription> merged(const std::vector<OptionDescription>& options) {
  std::vector<OptionDescription> result;
  for (const OptionDescription& option : options) {
    const auto same = std::ranges::find(result, option.name, &OptionDescription::name);
    if (same == result.end()) {
      result.push_back(option);
      continue;
    }
    const bool any_value = same->choices.empty() || option.choices.empty();
    for (const std::string& choice : option.choices) {
      if (std::ranges::count(same->choices, choice) == 0) same->choices.push_back(choice);
    }
    if (any_value) same->choices.clear();
    if (same->placeholder != option.placeholder)
      same->placeholder = value_placeholder(std::string());
    if (same->unit != option.unit) same->unit.clear();
    if (same->help == option.help) continue;
    if (!same->only_with.empty()) same->help += fmt::format(" ({})", same->only_with);
    same->only_with.clear();
    same->help += fmt::format("; {} ({})", option.help, option.only_with);
  }
  return result;
}

bool takes_text(const OptionDescription& option) {
  return option.choices.empty() && option.placeholder != "N" && option.placeholder != "X" &&
         option.placeholder != "true|false";
}

Work parse_completion(const Arguments& arguments) {
  std::vector<std::string> words, names;
  for (const Format& format : formats()) names.push_back(format.name);
  Options options("trireme completion bash|zsh|man");
  options.add_positional("FORMAT", words,
                         "bash, zsh: the shell's completion of commands, flags and values; man: "
                         "the manual page",
                         names);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  for (const Format& format : formats()) {
    if (words == std::vector{format.name}) return show(format.write(described_commands()));
  }
  throw ConfigError(fmt::format("completion takes one word, {}, not '{}'", fmt::join(names, " or "),
                                shown(fmt::format("{}", fmt::join(words, " ")))));
}

}  // namespace trireme::cli
