// The whole program as its users see it, and what is written from that: completions for shells and
// the manual page.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/options.h"

namespace trireme::cli {

struct DescribedCommand {
  std::string name, summary;
  CommandDescription description;
};

// Each returns the whole file.
std::string bash_completion(const std::vector<DescribedCommand>& commands);
std::string zsh_completion(const std::vector<DescribedCommand>& commands);
std::string manual_page(const std::vector<DescribedCommand>& commands);

// The words that complete a value; none where any text may stand, or a number.
std::vector<std::string> value_words(const OptionDescription& option);
bool takes_text(const OptionDescription& option);  // which may be the name of a file

}  // namespace trireme::cli
