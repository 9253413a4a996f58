#include "train/step_queue.h"

#include <algorithm>
#include <utility>

#include "trireme/base/resident_memory.h"

namespace trireme {

StepQueue::Mark StepQueue::mark() const {
  return {clock_.seconds(), exposed_comm()};
}

void StepQueue::push(const Mark& begin, parallel::QueuedStep step, const StepMetrics& metrics) {
  queued_.push_back({std::move(step), metrics, begin.time, exposed_comm() - begin.exposed_comm});
}

std::vector<StepQueue::Known> StepQueue::settle(std::size_t left) {
  std::vector<Known> known;
  while (queued_.size() > left) {
    known.push_back(settle(queued_.front()));
    queued_.pop_front();
  }
  return known;
}

StepQueue::Known StepQueue::settle(const Queued& queued) {
  const double exposed_before = exposed_comm();
  const parallel::StepResult result = queued.step.result(grid_);
  Known known;
  known.metrics = queued.metrics;
  known.wait_data_seconds = queued.metrics.wait_data_seconds;
  known.comm_seconds = queued.exposed_comm + exposed_comm() - exposed_before;
  // A step that was queued while the one before was computed began when that one ended.
  const double end = clock_.seconds();
  known.seconds = end - std::max(queued.begin, settled_);
  // These were not measured by that clock.
  known.wait_data_seconds = std::min(known.wait_data_seconds, known.seconds);
  known.comm_seconds = std::min(known.comm_seconds, known.seconds);
  settled_ = end;

  const MemoryStats memory = ctx_.allocator->stats();
  std::vector<double> most = {known.seconds,
                              known.wait_data_seconds,
                              known.comm_seconds,
                              peak_resident_bytes(),
                              static_cast<double>(memory.total_peak),
                              static_cast<double>(signals_.arrived())};
  const auto uses = static_cast<std::ptrdiff_t>(most.size());
  most.insert(most.end(), memory.peak.begin(), memory.peak.end());
  grid_.world().all_reduce_host(std::span<double>(most), ReduceOp::kMax);

  StepMetrics& metrics = known.metrics;
  metrics.loss = result.loss;
  metrics.gradient_norm = result.gradient_norm;
  metrics.units_per_second = static_cast<double>(units_per_step_) / most[0];
  metrics.step_seconds = most[0];
  metrics.wait_data_seconds = most[1];
  metrics.exposed_comm_seconds = most[2];
  metrics.memory_bytes = most[3];
  if (ctx_.device.kind != DeviceKind::kCpu) metrics.device_memory_bytes = most[4];
  std::copy_n(most.begin() + uses, kMemoryUses, metrics.memory_peak.begin());
  known.signal = static_cast<int>(most[5]);
  metrics.skipped = !result.finite;
  metrics.no_targets = result.targets == 0;
  if (metrics.no_targets) metrics.loss_scale.reset();  // it is what it was
  if (metrics.loss_scale) metrics.loss_scale = result.loss_scale;
  return known;
}

}  // namespace trireme
