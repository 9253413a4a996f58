#include "trireme/nn/host_micro_batch.h"

#include "trireme/ops/elementwise.h"

namespace trireme::nn {

HostMicroBatch make_host_micro_batch(ops::Context& ctx, std::int64_t batch, std::int64_t length,
                                     bool with_first_key) {
  const auto rows = [&] { return ctx.allocate_host({batch * length}, DType::kI32); };
  return {.batch = batch,
          .length = length,
          .tokens = rows(),
          .targets = rows(),
          .first_key = with_first_key ? rows() : Tensor(),
          .samples = ctx.allocate_host({batch}, DType::kI64)};
}

MicroBatch HostMicroBatch::to_device(ops::Context& ctx, std::int64_t target_count,
                                     bool training) const {
  MicroBatch made;
  made.batch = batch;
  made.length = length;
  made.tokens = ops::to_device(ctx, tokens);
  made.targets = ops::to_device(ctx, targets);
  made.target_count = target_count;
  if (first_key.defined()) made.first_key = ops::to_device(ctx, first_key);
  made.samples = ops::to_device(ctx, samples);
  made.training = training;
  made.loss_sum = ctx.allocate({1}, DType::kF64);
  ops::fill(ctx, made.loss_sum, 0.0f);
  return made;
}

}  // namespace trireme::nn
