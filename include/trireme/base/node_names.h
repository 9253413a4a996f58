// The names of a cluster's nodes, as Slurm writes them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Returns the name that the kernel has for this node, "unknown host" where it has none.
std::string host_name();

// Returns the names as Slurm writes them: "n[1-3,7], login". Names that end in a number with as
// many digits are gathered in brackets. Sorted, each name once.
std::string node_list(std::vector<std::string> names);

// Returns the names of a list as Slurm writes it, in its order: "n[1-3,07],login" or
// "r[1-2]n[1-4]". Throws ConfigError for a list that is malformed or has more than `most` names.
std::vector<std::string> expand_node_list(std::string_view list, std::size_t most);

// Returns, for each name of `wanted`, the index of the same node in `known`, or -1. One launcher
// calls a node "n1", another one "n1.site.org". So two names are those of one node if they are
// equal, or else if they are equal up to the first dot, unless another name of `wanted` or of
// `known` is so too.
std::vector<int> match_nodes(const std::vector<std::string>& wanted,
                             const std::vector<std::string>& known);

}  // namespace trireme
