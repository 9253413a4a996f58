// Helpers for the functions that build schedules.
#pragma once

#include <vector>

#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

using PipelineSteps = std::vector<PipelineStep>;

// A schedule without steps. Throws InternalError for sizes below 1.
PipelineSchedule empty_schedule(const char* name, const PipelineLayout& layout, int micro_batches);

inline void add_forward(PipelineSteps& steps, int micro_batch, int chunk = 0) {
  steps.push_back({PipelineStep::Kind::kForward, micro_batch, chunk, {}, {}});
}

inline void add_backward(PipelineSteps& steps, int micro_batch, int chunk = 0) {
  steps.push_back({PipelineStep::Kind::kBackwardInput, micro_batch, chunk, {}, {}});
  steps.push_back({PipelineStep::Kind::kBackwardWeight, micro_batch, chunk, {}, {}});
}

}  // namespace trireme::parallel
