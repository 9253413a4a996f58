// A trained model on any grid, for evaluation, generation and predictions: only weights, no
// gradients.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/models/family.h"
#include "trireme/parallel/stage.h"
#include "trireme/tasks/task.h"
#include "trireme/train/compute_device.h"

namespace trireme {

// Collective over comm. `where` is a checkpoint, a folder of checkpoints, or a run folder. In a
// folder it opens the newest good checkpoint, and rank 0 reports the newer ones that are damaged.
// Throws CheckpointError, the same on all ranks.
Checkpoint open_checkpoint_or_run(Communicator& comm, const std::string& where);

// Collective over comm. Returns the size of the largest checkpoint that open_checkpoint_or_run may
// open there; 0 where there is none.
std::int64_t largest_checkpoint_bytes(Communicator& comm, const std::string& where);

class InferenceModel {
 public:
  // Collective over the grid. The checkpoint's own configuration says what the model is;
  // `precision` ("fp32", "fp16") overrides its run.precision. Throws CheckpointError where that
  // configuration does not match the tensors, and ConfigError where the model does not fit the
  // grid. `shard` says whether ranks that share a copy (Axis::kShard) hold whole weights.
  InferenceModel(ops::Context& ctx, const ProcessGrid& grid, const Checkpoint& checkpoint,
                 const std::optional<std::string>& precision = std::nullopt,
                 const Config::Shard& shard = {});

  const parallel::Stage& stage() const { return *stage_; }
  const models::Model& model() const { return model_; }
  // The configuration that the model was trained with.
  const Config& training() const { return training_; }

  // What its checkpoint tells of the data that it was trained on.
  const tasks::TrainedOn& trained_on() const { return trained_on_; }

 private:
  std::string path_;
  Config training_;
  models::Model model_;
  tasks::TrainedOn trained_on_;
  std::unique_ptr<parallel::Stage> stage_;
};

// Collective over the world. Throws the ConfigError of check_memory_here where ranks that evaluate
// `micro` samples at a time do not fit or, with `predicts`, ranks that predict. Masked texts are
// taken to be as long as the model's context, with as many masks as in training.
void check_inference_memory(Runtime& runtime, const ComputeDevice& device,
                            const InferenceModel& model, int micro, bool predicts);

}  // namespace trireme
