// The samples that a data replica reads, step by step.
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/io/batch_plan.h"
#include "trireme/parallel/work_split.h"

namespace trireme {

struct StepSamples {
  // The place in the data of a sample, which are counted from the first step's first one.
  std::function<std::int64_t(std::int64_t)> place;
  std::int64_t of_step = 0;  // from a step's first to the next step's
  std::int64_t micro = 1;    // of a micro-batch
  std::int64_t steps = 0;
};

// Returns the plan of the replica that has those micro-batches of each step.
BatchPlan planned_samples(const parallel::WorkSplit& work, int replica, StepSamples samples);

}  // namespace trireme
