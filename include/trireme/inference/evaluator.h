// How well a trained model does on data that it was not trained on: `trireme eval`.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/inference/inference.h"

namespace trireme {

struct EvaluationReport {
  nn::EvaluationSums sums;
  double seconds = 0.0;
};

// Collective over comm. Opens data of the model's task, in order. Without paths it opens the
// held-out data that the model was trained with. Throws DataError and ConfigError as Task::open
// does, ConfigError where there are neither paths nor held-out data, and DataError as
// TaskData::check_trained does.
std::shared_ptr<const tasks::TaskData> open_evaluation_data(Communicator& comm,
                                                            const InferenceModel& model,
                                                            const std::vector<WeightedPath>& paths);

// Collective over the grid. Evaluates all of `data` on the grid of the stage, with `micro` samples
// per micro-batch of `length` target positions (nn::ModelPlan). The result is the same on every
// rank.
EvaluationReport evaluate_on(ops::Context& ctx, const parallel::Stage& stage,
                             const tasks::TaskData& data, std::int64_t micro, std::int64_t length);

}  // namespace trireme
