// A description of the whole program's command line, from which the shell completions and the
// manual page are written.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/options.h"

namespace trireme::cli {

struct DescribedCommand {
  std::string name, summary;
  CommandDescription description;
};

// Each returns the whole file.
std::string bash_completion(const std::vector<DescribedCommand>& commands);
std::string zsh_completion(const std::vector<DescribedCommand>& commands);
std::string manual_page(const std::vector<DescribedCommand>& commands);

// Returns the options with each name once. Options of one name that exist with different values of
// a key, as those of model families, become one that takes what any of them takes.
std::vector<OptionDescription> merged(const std::vector<OptionDescription>& options);

// Returns the words that complete a value; none if the value is free text or a number.
std::vector<std::string> value_words(const OptionDescription& option);
bool takes_text(const OptionDescription& option);  // the text may be a file name

}  // namespace trireme::cli
