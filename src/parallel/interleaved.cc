#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "compute_steps.h"

namespace trireme::parallel {
namespace {

struct PartOfMicroBatch {
  int micro_batch, chunk;
};

// The n-th forward or backward of a stage. A group of as many micro-batches as there are stages
// goes through one chunk after the other; then comes the next group.
PartOfMicroBatch nth(const PipelineLayout& layout, int n, bool forward) {
  const int group = n / layout.parts(), within = n % layout.parts();
  const int chunk = within / layout.stages;
  return {group * layout.stages + within % layout.stages,
          forward ? chunk : layout.chunks - 1 - chunk};
}

}  // namespace

std::int64_t interleaved_warmup(const PipelineLayout& layout, int stage) {
  return 2 * (std::int64_t{layout.stages} - 1 - stage) +
         (std::int64_t{layout.chunks} - 1) * layout.stages;
}

PipelineSchedule interleaved_schedule(int stages, int chunks, int micro_batches) {
  const PipelineLayout layout{stages, chunks};
  PipelineSchedule schedule = empty_schedule("interleaved", layout, micro_batches);
  TRIREME_CHECK(micro_batches % stages == 0,
                fmt::format("{} micro-batches are not whole groups of {}", micro_batches, stages));
  const int all = micro_batches * chunks;
  for (int stage = 0; stage < stages; ++stage) {
    PipelineSteps& steps = schedule.steps[static_cast<std::size_t>(stage)];
    const auto forward = [&](int n) {
      const auto [m, chunk] = nth(layout, n, true);
      add_forward(steps, m, chunk);
    };
    const auto backward = [&](int n) {
      const auto [m, chunk] = nth(layout, n, false);
      add_backward(steps, m, chunk);
    };
    const auto warmup =
        static_cast<int>(std::min<std::int64_t>(interleaved_warmup(layout, stage), all));
    for (int n = 0; n < warmup; ++n) forward(n);
    for (int n = warmup; n < all; ++n) {
      forward(n);
      backward(n - warmup);
    }
    for (int n = all - warmup; n < all; ++n) backward(n);
  }
  insert_exchanges(schedule);
  return schedule;
}

}  // namespace trireme::parallel
