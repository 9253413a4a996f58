// Which blocks of the model each pipeline stage runs.
#pragma once

#include <span>
#include <vector>

namespace trireme::parallel {

// Splits blocks with the given costs (any unit, finite, >= 0) into `stages` contiguous runs of at
// least one block. Returns `bounds`, with stages + 1 entries: stage s runs blocks
// [bounds[s], bounds[s + 1]). The split minimizes the cost of the most expensive stage (exactly, by
// dynamic programming). Ties are broken by the least sum of squared stage costs, then by fewer
// blocks in the earlier stages, which hold more micro-batches. The result depends on the arguments
// alone, so it is the same on every rank. Throws ConfigError if there are more stages than blocks.
std::vector<int> partition_blocks(std::span<const double> costs, int stages);

}  // namespace trireme::parallel
