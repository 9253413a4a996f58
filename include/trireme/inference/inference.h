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

namespace trireme {

// What a checkpoint holds, and how its model is to be computed.
struct InferencePlan {
  // The checkpoint's own configuration says what the model is; `precision` ("fp32", "fp16")
  // overrides its run.precision. Throws CheckpointError where that configuration does not match the
  // tensors, or it has no averages. `shard` says whether ranks that share a copy (Axis::kShard)
  // hold whole weights.
  explicit InferencePlan(const Checkpoint& checkpoint,
                         const std::optional<std::string>& precision = std::nullopt,
                         const Config::Shard& shard = {}, bool of_averages = false);

  Config training;  // the configuration that the model was trained with
  models::Model model;
  tasks::TrainedOn trained_on;  // what the checkpoint tells of the data
  parallel::StageOptions stage;
  bool averages;  // of the weights (optim.average), in their place
};

class InferenceModel {
 public:
  // Collective over the grid. Reads the weights of the checkpoint for which `plan` was made. Throws
  // ConfigError where the model does not fit the grid, and the errors of read_checkpoint.
  InferenceModel(ops::Context& ctx, const ProcessGrid& grid, const Checkpoint& checkpoint,
                 InferencePlan plan);

  const parallel::Stage& stage() const { return *stage_; }
  const models::Model& model() const { return plan_.model; }
  const Config& training() const { return plan_.training; }
  const tasks::TrainedOn& trained_on() const { return plan_.trained_on; }

 private:
  InferencePlan plan_;
  std::unique_ptr<parallel::Stage> stage_;
};

}  // namespace trireme
