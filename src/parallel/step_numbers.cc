#include "trireme/parallel/step_numbers.h"

#include <algorithm>

#include "trireme/tensor/copy.h"

namespace trireme::parallel {

StepNumbers::StepNumbers(ops::Context& ctx, std::span<const nn::MicroBatch> batches,
                         const Tensor& norm)
    : losses_(ctx.allocate_host({std::ssize(batches)}, DType::kF64, MemoryUse::kWorkspace)) {
  std::int64_t at = 0;
  for (const nn::MicroBatch& batch : batches) {
    copy(batch.loss_sum, losses_.flat_range(at, at + 1), ctx.stream);
    ++at;
  }
  queue_correct(ctx, batches);
  if (norm.defined()) queue_optimizer(ctx, norm);
  if (!ctx.cuda) return;
  event_ = std::make_shared<cuda::Event>(ctx.cuda, ctx.device.index);
  event_->record(ctx.stream);
}

void StepNumbers::queue_correct(ops::Context& ctx, std::span<const nn::MicroBatch> batches) {
  const auto counts = [](const nn::MicroBatch& batch) { return batch.correct.defined(); };
  const std::int64_t counting = std::ranges::count_if(batches, counts);
  if (counting == 0) return;
  correct_ = ctx.allocate_host({counting, 2}, DType::kI64, MemoryUse::kWorkspace);
  std::int64_t at = 0;
  for (const nn::MicroBatch& batch : batches) {
    if (!counts(batch)) continue;
    copy(batch.correct, correct_.flat_range(at, at + 2), ctx.stream);
    at += 2;
  }
}

void StepNumbers::queue_optimizer(ops::Context& ctx, const Tensor& norm) {
  norm_ = ctx.allocate_host({1}, DType::kF64, MemoryUse::kWorkspace);
  copy(norm, norm_, ctx.stream);
  state_ = ctx.host_allocator->allocate(sizeof(ops::StepState), MemoryUse::kWorkspace, Stream());
  ops::queue_step_state_read(ctx, reinterpret_cast<ops::StepState*>(state_.get()));
  record_use(state_, ctx.stream);
}

void StepNumbers::wait() const {
  if (event_) event_->synchronize();
}

void StepNumbers::add_losses_to(ExactSum& sum) const {
  for (const double loss : losses_.span<double>()) sum.add(loss);
}

std::optional<nn::CorrectCounts> StepNumbers::correct() const {
  if (!correct_.defined()) return {};
  nn::CorrectCounts sum;
  const auto counts = correct_.span<std::int64_t>();
  for (std::size_t i = 0; i < counts.size(); i += 2) {
    sum.top1 += counts[i];
    sum.top5 += counts[i + 1];
  }
  return sum;
}

double StepNumbers::gradient_norm() const {
  return norm_.data<double>()[0];
}

const ops::StepState& StepNumbers::state() const {
  return *reinterpret_cast<const ops::StepState*>(state_.get());
}

}  // namespace trireme::parallel
