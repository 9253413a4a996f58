#include "compute_steps.h"

namespace trireme::parallel {

PipelineSchedule gpipe_schedule(int stages, int micro_batches) {
  PipelineSchedule schedule = empty_schedule("gpipe", stages, micro_batches);
  for (PipelineSteps& steps : schedule.steps) {
    for (int m = 0; m < micro_batches; ++m) add_forward(steps, m);
    for (int m = 0; m < micro_batches; ++m) add_backward(steps, m);
  }
  insert_exchanges(schedule);
  return schedule;
}

PipelineSchedule forward_schedule(int stages, int micro_batches) {
  PipelineSchedule schedule = empty_schedule("forward", stages, micro_batches);
  for (PipelineSteps& steps : schedule.steps) {
    for (int m = 0; m < micro_batches; ++m) add_forward(steps, m);
  }
  insert_exchanges(schedule);
  return schedule;
}

}  // namespace trireme::parallel
