#include "trireme/nn/host_micro_batch.h"

#include "trireme/ops/elementwise.h"

namespace trireme::nn {

HostMicroBatch::HostMicroBatch(ops::Context& ctx, std::int64_t count, std::int64_t positions)
    : batch(count), length(positions), samples(ctx.allocate_host({batch}, DType::kI64)) {}

Tensor HostMicroBatch::add(ops::Context& ctx, std::string_view name, const Shape& shape,
                           DType dtype) {
  const Tensor tensor = ctx.allocate_host(shape, dtype);
  fields.set(name, tensor);
  return tensor;
}

MicroBatch HostMicroBatch::to_device(ops::Context& ctx, std::int64_t target_count,
                                     bool training) const {
  MicroBatch made;
  made.batch = batch;
  made.length = length;
  for (const auto& [name, tensor] : fields) made.fields.set(name, ops::to_device(ctx, tensor));
  made.target_count = target_count;
  made.samples = ops::to_device(ctx, samples);
  made.training = training;
  made.loss_sum = ctx.allocate({1}, DType::kF64);
  ops::fill(ctx, made.loss_sum, 0.0f);
  return made;
}

}  // namespace trireme::nn
