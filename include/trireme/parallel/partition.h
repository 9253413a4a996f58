// Which blocks of the model each part of it has (PipelineLayout).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "trireme/nn/block.h"
#include "trireme/nn/trained.h"
#include "trireme/parallel/pipeline_layout.h"
#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

// Splits blocks with the given costs (any unit, finite, >= 0) into stages x chunks parts, each of
// at least one neighbouring block. A part costs the sum of its blocks, and what it costs to send
// its last block's output on: handed_on[i] for block i, or nothing where there is no such list.
// Returns `bounds`, with an entry more than there are parts: blocks [bounds[p], bounds[p + 1]) are
// those of part p. The split minimizes the cost of the most expensive part (exactly, by dynamic
// programming). Ties are broken by the least sum of squared costs, then by fewer blocks in the
// earlier parts, of which more micro-batches are held. The result depends on the arguments alone,
// so it is the same on every rank. `beside` adds to the cost of each part, where it is given, and
// `slowness` multiplies its own.
// Throws ConfigError if there are more parts than blocks.
std::vector<int> partition_blocks(std::span<const double> costs, int stages, int chunks = 1,
                                  std::span<const double> handed_on = {},
                                  std::span<const double> beside = {},
                                  std::span<const double> slowness = {});

// How many FLOPs a machine does while one byte moves from or to memory, and while one is sent to
// another stage. Every rank must cut a model alike, and a dry run of a machine that is not here
// too, so these are numbers of no machine in particular: of nodes with 5 TFLOP/s in fp32, 300 GB/s
// of memory and a link of 400 Gb/s. Dense layers are above the first on all machines, depthwise
// convolutions and norms are below.
inline constexpr double kFlopsPerByte = 16.0;
inline constexpr double kFlopsPerSentByte = 100.0;

// What the forward of a block takes for one sample, counted in FLOPs: the larger of the times to
// compute and to move its bytes.
double cost_of(const nn::BlockPlan& block);

// The parts of a model, as partition_blocks returns them, by cost_of and by the bytes that its
// boundaries hold for one sample. Where stages have several chunks in a loop, a stage computes one
// after the other, so what is minimized is the cost of the most expensive stage, then the sum of
// squared costs of stages: parts that share a stage with an expensive one, such as the head, get
// fewer blocks. This is no longer exact: the model is cut again, each part weighed with the others
// of its stage, as long as that gains. Where some parameters are frozen, a block costs the forward
// and those of its two gradients that are computed, and boundaries before the first block that
// trains carry no gradient. `speeds` are those of the stages, in any unit; without any they are
// equal.
std::vector<int> cut_model(const nn::ModelPlan& plan, const PipelineLayout& layout,
                           const nn::TrainedParameters& trained = {},
                           std::span<const double> speeds = {});

// The parts of a model whose numbers of blocks are given, as `cut`; where that is empty, those of
// cut_model. Throws ConfigError where the numbers are not those of the parts, or of all blocks.
std::vector<int> parts_of_model(const nn::ModelPlan& plan, const PipelineLayout& layout,
                                std::span<const int> cut,
                                const nn::TrainedParameters& trained = {});

// Returns the part that has the block.
int part_with(std::span<const int> bounds, int block);

// Returns for each part of the model the block behind the last of those that the backward computes
// again, where in each stage `count` blocks are: the first ones in the order of the model from
// block `first_trained` on, since those before have no backward. They are held longest, and are
// computed again when those behind have left memory. A stage of fewer blocks computes all again;
// without a count all stages do.
std::vector<int> ends_of_recomputed(std::span<const int> bounds, const PipelineLayout& layout,
                                    std::optional<int> count, int first_trained);

// What the steps of each part of the model cost in training, in FLOPs per sample (cost_of). Part p
// has blocks [bounds[p], bounds[p + 1]). A block's forward, input gradient and weight gradient cost
// the same; of what is frozen, those that are computed. Those of a loss block are all in its
// backward-input. With `recomputed` > 0 the backward-input also computes the forward of each run of
// so many blocks before `ends` (ends_of_recomputed; empty: of all) again, but for a run that ends
// in the loss: that has no forward before its backward (nn::BlockRun).
std::vector<StepCosts> costs_of_parts(std::span<const nn::BlockPlan> blocks,
                                      std::span<const int> bounds, int recomputed = 0,
                                      const nn::TrainedParameters& trained = {},
                                      std::span<const int> ends = {});

}  // namespace trireme::parallel
