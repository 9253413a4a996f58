// How a configuration wants a training step to be computed.
#pragma once

#include <optional>
#include <string>

#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/ops/attention.h"
#include "trireme/parallel/meeting.h"
#include "trireme/parallel/trainer_step.h"

namespace trireme {

// Returns the type of activations for run.precision. tf32 gives fp32; it only changes the GPU's
// context. fp8 gives bf16; it only changes products of blocks in training
// (StageOptions::block_scaled).
DType compute_type(const std::string& precision);

// Returns the loss scaling; fixed at 1 unless the precision is fp16.
ops::LossScaling loss_scaling(const Config& config);

// Returns how islands meet (sync.*); nothing where they never do, or where one is its own mean.
// Throws ConfigError if the model has fewer blocks than there are fragments.
std::optional<parallel::MeetingRule> meeting_rule(const Config& config, const nn::ModelPlan& model);

// In what follows `grid` is that of resolve_run_grid, and `model` is trained there. These throw
// ConfigError if the model does not fit the grid, or optim.freeze does not fit the model.

// Returns how the step is computed. StepOptions::work says how its micro-batches form runs
// (batch.runs). Without the key there are as many runs as data replicas. From shard.stage 2 on each
// micro-batch is a run instead, so that no whole gradients stay, where the replicas are a power of
// two that divides the micro-batches and the rank that holds most then holds fewer bytes of
// gradients (plan::most_gradients). That is counted without recomputation and with one chunk on
// each stage, so that neither decides about the order of sums.
parallel::StepOptions step_options(const Config& config, const nn::ModelPlan& model,
                                   const GridShape& grid);

// Returns why ranks hold whole gradients all the time ("a run has several micro-batches"), or
// nothing where they do not. Below shard.stage 2 they do, and where a run has several micro-batches
// or a replica adds runs up before it reduces them: then whole gradients would be there during most
// of a step anyway.
std::string why_whole_gradients_stay(const Config& config, const nn::ModelPlan& model,
                                     const GridShape& grid);

// The attention that a rank computes in a micro-batch.
struct AttentionOfStep {
  std::int64_t micro = 0;  // samples
  DType compute = DType::kF32;
  bool masks_documents = false;
};
// Collective over comm. Returns what computes that attention, with the same text on all ranks: rank
// 0's and, if other ranks differ from it, that of the lowest rank that does; "none" for a model
// without attention. May take seconds on a GPU, because a library then compiles what the first step
// would compile otherwise.
ops::AttentionChoice attention_choice(Communicator& comm, const ops::Context& ctx,
                                      const models::Model& model, const GridShape& grid,
                                      const AttentionOfStep& step);

}  // namespace trireme
