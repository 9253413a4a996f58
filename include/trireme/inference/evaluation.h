// The loss on held-out data.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/parallel/trainer_step.h"
#include "trireme/tasks/task.h"

namespace trireme {

// What a training step of the stage reads of its micro-batches.
tasks::ReadFor read_for(const parallel::Stage& stage);

// Whether so many micro-batches at most (nullopt: any number) are all of the data.
bool takes_all(const tasks::TaskData& data, std::int64_t micro, std::optional<std::int64_t> limit);

// Collective over the grid. Returns the sums over all of `data`, in order, on any grid. `limit`
// bounds the number of micro-batches of the whole evaluation (nullopt: all). Those of a smaller
// number come from everywhere in the data (pictures are often sorted by class): the first samples
// of an order that depends on nothing but how many there are, so that all runs on the same data
// compare the same ones.
nn::EvaluationSums evaluate(parallel::PipelineExecutor& executor, const tasks::TaskData& data,
                            std::int64_t micro, std::optional<std::int64_t> limit);

}  // namespace trireme
