// Helpers for the functions that build schedules.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

using PipelineSteps = std::vector<PipelineStep>;

// A schedule without steps. Throws InternalError for sizes below 1.
PipelineSchedule empty_schedule(const char* name, const PipelineLayout& layout, int micro_batches);

// The forwards of a stage before its first backward in interleaved 1F1B, if there are so many.
std::int64_t interleaved_warmup(const PipelineLayout& layout, int stage);

inline void add_forward(PipelineSteps& steps, int micro_batch, int chunk = 0) {
  steps.push_back({PipelineStep::Kind::kForward, micro_batch, chunk, {}, {}});
}

inline void add_backward(PipelineSteps& steps, int micro_batch, int chunk = 0) {
  steps.push_back({PipelineStep::Kind::kBackwardInput, micro_batch, chunk, {}, {}});
  steps.push_back({PipelineStep::Kind::kBackwardWeight, micro_batch, chunk, {}, {}});
}

}  // namespace trireme::parallel
