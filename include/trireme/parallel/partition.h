// Which blocks of the model each part of it has (PipelineLayout).
#pragma once

#include <span>
#include <vector>

#include "trireme/nn/block.h"
#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

// Splits blocks with the given costs (any unit, finite, >= 0) into stages x chunks parts, each of
// at least one neighbouring block. Returns `bounds`, with an entry more than there are parts: part
// p has blocks [bounds[p], bounds[p + 1]). The split minimizes the cost of the most expensive part
// (exactly, by dynamic programming). Ties are broken by the least sum of squared costs, then by
// fewer blocks in the earlier parts, of which more micro-batches are held. The result depends on
// the arguments alone, so it is the same on every rank. Throws ConfigError if there are more parts
// than blocks.
std::vector<int> partition_blocks(std::span<const double> costs, int stages, int chunks = 1);

// What the steps of each part of the model cost in training, in FLOPs per sample. Part p has blocks
// [bounds[p], bounds[p + 1]). A block's forward, input gradient and weight gradient cost the same,
// which is BlockPlan::cost. Those of a loss block are all in its backward-input. With
// `recomputed` > 0 the backward-input also computes the forward of each run of so many blocks
// again, but for a run that ends in the loss: that has no forward before its backward
// (nn::BlockRun).
std::vector<StepCosts> costs_of_parts(std::span<const nn::BlockPlan> blocks,
                                      std::span<const int> bounds, int recomputed = 0);

}  // namespace trireme::parallel
