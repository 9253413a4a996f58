// The names of a cluster's nodes, for messages.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Returns the names as Slurm writes them: "n[1-3,7], login". Names that end in a number with as many
// digits are gathered in brackets. Sorted, each name once.
std::string node_list(std::vector<std::string> names);

}  // namespace trireme
