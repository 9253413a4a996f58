// Which blocks of the model each pipeline stage runs.
#pragma once

#include <span>
#include <vector>

namespace trireme::parallel {

// Splits blocks with the given costs (any unit, finite, >= 0) into `stages` contiguous runs of at
// least one block: stage s runs blocks [bounds[s], bounds[s + 1]) of the result, which has
// stages + 1 entries. The split is one whose dearest stage is as cheap as can be (exact, by dynamic
// programming); among those the one with the least sum of squared stage costs; among those the one
// with fewer blocks in the earlier stages, which hold more micro-batches. Depends on the arguments
// alone, so every rank finds the same.
// Throws ConfigError where there are more stages than blocks.
std::vector<int> partition_blocks(std::span<const double> costs, int stages);

}  // namespace trireme::parallel
