// The lines of one of Slurm's files, as Slurm's own parser reads them (its parse_config.c).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Calls visit(line, number) for each line that says something, with the number of its first line in
// the text. '#' begins a comment anywhere, a backslash at the end joins a line with the next one,
// and elsewhere it takes the meaning from what follows it.
void for_each_slurm_line(std::string_view text,
                         const std::function<void(const std::string&, int)>& visit);

struct IncludeLine {
  std::string file;
  std::string rest;  // what follows, and should not
};
// Reads a line "Include FILE"; nothing for any other line.
std::optional<IncludeLine> included_in(std::string_view line);

struct SlurmPair {
  std::string key;    // in lower case
  std::string value;  // without its quotes
};
struct SlurmPairs {
  std::vector<SlurmPair> pairs;
  std::string rest;  // from where the line is no KEY=VALUE any more
};
// Blanks may stand around '=' and in values in quotes.
SlurmPairs slurm_pairs_of(std::string_view line);

}  // namespace trireme
