// Makes the objects of a training run from its configuration; shared by train, eval and generate.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/dataset.h"
#include "trireme/models/gpt.h"
#include "trireme/ops/attention.h"
#include "trireme/parallel/trainer_step.h"

namespace trireme {

// Returns the model that model.* asks for: the preset, overridden by explicit keys, and built-in
// values for the rest. With data, the vocabulary is the data's, and a preset's own vocabulary
// counts only without data. Throws ConfigError for an explicit model.vocabulary that differs from
// the data's.
models::GptConfig resolve_model(const Config::Model& model, std::optional<int> data_vocabulary);

// Returns only the context. It fixes the length of a sample, before the data and its vocabulary are
// known.
std::int64_t resolve_context(const Config::Model& model);

// Returns model.* with every value written out, so that a checkpoint needs no preset.
Config::Model written_out(const models::GptConfig& model);

// Returns the grid with its data dimension divided as shard.* says. Throws ConfigError where
// shard.group does not divide it, and for shard.stage 3 where it is 1.
GridShape with_shards(const GridShape& grid, const Config::Shard& shard);

// Resolves grid.* and shard.* for `ranks` ranks. Throws ConfigError where the ranks do not fill the
// grid, a step has fewer micro-batches than the grid has replicas, or they cannot be batch.runs
// runs there.
GridShape resolve_run_grid(const Config& config, int ranks);

// For a start that continues a run with run.same_bits on other ranks than before. If the data
// replicas of grid.* no longer divide the runs of micro-batches, changes config.grid to a grid
// whose replicas do, within what is given of grid.*; or else gives run.same_bits up. Returns a line
// for the user, or nothing if all is as it was.
std::string keep_same_bits(Config& config, int ranks);

// Throws ConfigError where the tensor ranks cannot split the model's heads or, with sequence
// parallelism, the positions of a micro-batch, and where a step has more than 2^32 tokens.
void check_model_fits_grid(const Config& config, const models::GptConfig& model,
                           const GridShape& grid);

// Returns the type of activations for run.precision. tf32 gives fp32; it only changes the GPU's
// context.
DType compute_type(const std::string& precision);

// Returns the loss scaling; fixed at 1 unless the precision is fp16.
ops::LossScaling loss_scaling(const Config& config);

parallel::StepOptions step_options(const Config& config);

// The attention that a rank computes in a micro-batch.
struct AttentionOfStep {
  std::int64_t micro = 0;  // samples
  DType compute = DType::kF32;
  bool masks_documents = false;
};
// Collective over comm. Returns what computes that attention, with the same text on all ranks: rank
// 0's and, if other ranks differ from it, that of the lowest rank that does. May take seconds on a
// GPU, because a library then compiles what the first step would compile otherwise.
ops::AttentionChoice attention_choice(Communicator& comm, const ops::Context& ctx,
                                      const models::GptConfig& model, const GridShape& grid,
                                      const AttentionOfStep& step);

// Returns the parameters, and the optimizer's state where `optimizer` is given, as slices of a
// checkpoint. With `owned_only` it returns only those that this rank writes: each element of the
// model is on exactly one rank's list, and all ranks that hold copies share in writing them.
std::vector<TensorSlice> checkpoint_slices(const parallel::Stage& stage,
                                           const optim::Optimizer* optimizer, bool owned_only);

// Collective over the stage's grid. Fills slices of the stage's parameters and optimizer state from
// a checkpoint, and makes the weights from them.
void read_checkpoint(ops::Context& ctx, const Checkpoint& checkpoint, parallel::Stage& stage,
                     std::span<const TensorSlice> slices);

// Returns what a checkpoint keeps of `state`: the number of updates and, with `loss_scale`, the
// loss scaler's state. `state` must outlive the slices. It is the same on every rank, so one rank
// writes it.
std::vector<TensorSlice> state_slices(ops::StepState& state, bool loss_scale);

// Returns samples [begin, begin + micro) of a batch of data as a micro-batch. Samples past the end
// of `data` are padding with masked targets.
nn::MicroBatch make_micro_batch(ops::Context& ctx, const TokenBatch& data, std::int64_t context,
                                std::size_t begin, std::int64_t micro, bool training);

// Collective over the grid. Returns the sum of the losses over all of `data`, in windows without
// overlap, on any grid. `limit` bounds the number of micro-batches of the whole evaluation
// (nullopt: all).
parallel::EvaluationResult evaluate(parallel::PipelineExecutor& executor, const TokenDataset& data,
                                    std::int64_t micro, bool mask_documents,
                                    std::optional<std::int64_t> limit);

}  // namespace trireme
