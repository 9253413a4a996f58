#include <algorithm>

#include "compute_steps.h"

namespace trireme::parallel {

PipelineSchedule gpipe_schedule(int stages, int micro_batches) {
  PipelineSchedule schedule = empty_schedule("gpipe", {.stages = stages}, micro_batches);
  for (PipelineSteps& steps : schedule.steps) {
    for (int m = 0; m < micro_batches; ++m) add_forward(steps, m);
    for (int m = 0; m < micro_batches; ++m) add_backward(steps, m);
  }
  insert_exchanges(schedule);
  return schedule;
}

PipelineSchedule forward_schedule(const PipelineLayout& layout, int micro_batches) {
  PipelineSchedule schedule = empty_schedule("forward", layout, micro_batches);
  for (PipelineSteps& steps : schedule.steps) {
    for (int first = 0; first < micro_batches; first += layout.stages) {
      const int end = std::min(first + layout.stages, micro_batches);
      for (int chunk = 0; chunk < layout.chunks; ++chunk) {
        for (int m = first; m < end; ++m) add_forward(steps, m, chunk);
      }
    }
  }
  insert_exchanges(schedule);
  return schedule;
}

}  // namespace trireme::parallel
