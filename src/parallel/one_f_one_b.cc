#include <algorithm>

#include "compute_steps.h"

namespace trireme::parallel {

PipelineSchedule one_f_one_b_schedule(int stages, int micro_batches) {
  PipelineSchedule schedule = empty_schedule("1f1b", {.stages = stages}, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    PipelineSteps& steps = schedule.steps[static_cast<std::size_t>(stage)];
    // The number of forwards that fill the later stages before the first gradient can come back.
    const int warmup = std::min(micro_batches, stages - 1 - stage);
    for (int m = 0; m < warmup; ++m) add_forward(steps, m);
    for (int m = warmup; m < micro_batches; ++m) {
      add_forward(steps, m);
      add_backward(steps, m - warmup);
    }
    for (int m = micro_batches - warmup; m < micro_batches; ++m) add_backward(steps, m);
  }
  insert_exchanges(schedule);
  return schedule;
}

}  // namespace trireme::parallel
