// Which blocks of the model each pipeline stage runs.
#pragma once

#include <span>
#include <vector>

#include "trireme/nn/block.h"
#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

// Splits blocks with the given costs (any unit, finite, >= 0) into `stages` contiguous runs of at
// least one block. Returns `bounds`, with stages + 1 entries: stage s runs blocks
// [bounds[s], bounds[s + 1]). The split minimizes the cost of the most expensive stage (exactly, by
// dynamic programming). Ties are broken by the least sum of squared stage costs, then by fewer
// blocks in the earlier stages, which hold more micro-batches. The result depends on the arguments
// alone, so it is the same on every rank. Throws ConfigError if there are more stages than blocks.
std::vector<int> partition_blocks(std::span<const double> costs, int stages);

// What the steps of each part of the model cost in training, in FLOPs per sample. Part p has blocks
// [bounds[p], bounds[p + 1]). A block's forward, input gradient and weight gradient cost the same,
// which is BlockPlan::cost. Those of a loss block are all in its backward-input.
std::vector<StepCosts> costs_of_parts(std::span<const nn::BlockPlan> blocks,
                                      std::span<const int> bounds);

}  // namespace trireme::parallel
