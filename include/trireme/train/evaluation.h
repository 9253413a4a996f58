// The loss on held-out data.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/parallel/trainer_step.h"
#include "trireme/tasks/task.h"

namespace trireme {

// What a training step of the stage reads of its micro-batches.
tasks::ReadFor read_for(const parallel::Stage& stage);

// Collective over the grid. Returns the sums over all of `data`, in order, on any grid. `limit`
// bounds the number of micro-batches of the whole evaluation (nullopt: all).
nn::EvaluationSums evaluate(parallel::PipelineExecutor& executor, const tasks::TaskData& data,
                            std::int64_t micro, std::optional<std::int64_t> limit);

}  // namespace trireme
