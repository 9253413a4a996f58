// From a configuration to the objects that train it: shared by train, eval and generate.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/dataset.h"
#include "trireme/models/gpt.h"
#include "trireme/parallel/trainer_step.h"

namespace trireme {

// The model that model.* asks for: the preset, explicit keys over it, and built-in values for the
// rest. With data, the vocabulary is the data's; an explicit model.vocabulary that differs is a
// ConfigError, and a preset's own counts only without data.
models::GptConfig resolve_model(const Config::Model& model, std::optional<int> data_vocabulary);

// The context alone, which decides what a sample is before the data and its vocabulary are known.
std::int64_t resolve_context(const Config::Model& model);

// model.* with every value written out, so that a checkpoint needs no preset.
Config::Model written_out(const models::GptConfig& model);

// grid.* over so many ranks. Throws ConfigError where the ranks do not fill the grid, or a step has
// fewer micro-batches than the grid has replicas.
GridShape resolve_run_grid(const Config& config, int ranks);

// Throws ConfigError where the tensor ranks cannot split the model's heads or, with sequence
// parallelism, the positions of a micro-batch; and where a step has more than 2^32 tokens.
void check_model_fits_grid(const Config& config, const models::GptConfig& model,
                           const GridShape& grid);

// The type of activations that run.precision means. tf32 is fp32: it is for the GPU's context.
DType compute_type(const std::string& precision);

// Fixed at 1 but for fp16.
ops::LossScaling loss_scaling(const Config& config);

parallel::StepOptions step_options(const Config& config);

// Parameters, and the optimizer's state where `optimizer` is given, as slices of a checkpoint. With
// `owned_only`, those that this rank writes: each element of the model is on exactly one rank's
// list.
std::vector<TensorSlice> checkpoint_slices(const parallel::Stage& stage,
                                           const optim::Optimizer* optimizer, bool owned_only);

// What a checkpoint keeps of `state`, which outlives the slices: the number of updates and, with
// `loss_scale`, the loss scaler's part. It is the same on every rank, so one rank writes it.
std::vector<TensorSlice> state_slices(ops::StepState& state, bool loss_scale);

// Samples [begin, begin + micro) of a batch of data as a micro-batch; those past the end of `data`
// are padded with masked targets.
nn::MicroBatch make_micro_batch(ops::Context& ctx, const TokenBatch& data, std::int64_t context,
                                std::size_t begin, std::int64_t micro, bool training);

// Sum of the losses over all of `data`, in windows without overlap, on any grid; `limit` bounds the
// number of micro-batches of the whole evaluation (none: all). Collective over the grid.
parallel::EvaluationResult evaluate(ops::Context& ctx, const parallel::Stage& stage,
                                    const TokenDataset& data, std::int64_t micro,
                                    bool mask_documents, std::optional<std::int64_t> limit);

}  // namespace trireme
