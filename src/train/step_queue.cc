#include "train/step_queue.h"

#include <algorithm>
#include <cmath>
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

// Collective over the islands. Returns what the step was for all of them: the mean loss over all
// targets, the longest gradient, and whether it was skipped anywhere.
parallel::StepResult StepQueue::of_islands(const parallel::StepResult& own,
                                           StepMetrics& metrics) const {
  if (islands_.count() == 1) return own;
  enum Number : std::size_t { kLoss, kNorm, kTargets, kFinite, kScale, kNumbers };
  std::vector<double> mine = {own.loss, own.gradient_norm, static_cast<double>(own.targets),
                              own.finite ? 1.0 : 0.0, own.loss_scale};
  std::vector<double> all(kNumbers * static_cast<std::size_t>(islands_.count()));
  islands_.across()
      .all_gather(Stream(), Tensor::wrap(std::span(mine)), Tensor::wrap(std::span(all)))
      .wait_host();
  parallel::StepResult result = own;
  double losses = 0.0, targets = 0.0;
  result.gradient_norm = 0.0;
  for (std::size_t at = 0; at < all.size(); at += kNumbers) {
    const double loss = all[at + kLoss], norm = all[at + kNorm], seen = all[at + kTargets];
    metrics.losses_of_islands.push_back(loss);
    if (seen > 0.0) losses += loss * seen;
    targets += seen;
    if (std::isnan(norm) || norm > result.gradient_norm) result.gradient_norm = norm;
    result.finite = result.finite && all[at + kFinite] != 0.0;
    result.loss_scale = std::min(result.loss_scale, all[at + kScale]);
  }
  result.targets = static_cast<std::int64_t>(targets);
  result.loss = losses / targets;
  return result;
}

StepQueue::Known StepQueue::settle(const Queued& queued) {
  const double exposed_before = exposed_comm();
  Known known;
  known.metrics = queued.metrics;
  const parallel::StepResult result = of_islands(queued.step.result(grid_), known.metrics);
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
  grid_.runtime().world().all_reduce_host(std::span<double>(most), ReduceOp::kMax);

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
