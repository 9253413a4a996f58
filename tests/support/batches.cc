#include "support/batches.h"

#include "trireme/base/philox.h"
#include "trireme/ops/softmax_loss.h"

namespace trireme::testing {
namespace {

nn::MicroBatch make_batch(ops::Context& ctx, const BatchShape& shape, int number, bool training) {
  const std::int64_t rows = shape.micro * shape.length;
  nn::MicroBatch batch;
  batch.batch = shape.micro;
  batch.length = shape.length;
  batch.training = training;
  const Tensor tokens = ctx.allocate({rows}, DType::kI32);
  const Tensor targets = ctx.allocate({rows}, DType::kI32);
  batch.fields.set(nn::kTokens, tokens);
  batch.fields.set(nn::kTargets, targets);
  batch.samples = ctx.allocate({shape.micro}, DType::kI64);
  batch.loss_sum = ctx.allocate({1}, DType::kF64);
  batch.loss_sum.data<double>()[0] = 0.0;
  const std::uint64_t key = philox_key(7, "test tokens");
  const auto token = [&](std::int64_t sample, std::int64_t position) {
    const auto index = static_cast<std::uint64_t>(sample * (shape.length + 1) + position);
    const float u = philox_uniform_at(key, index);  // squared: some tokens are more common
    return static_cast<std::int32_t>(u * u * 0.999f * static_cast<float>(shape.vocabulary));
  };
  for (std::int64_t b = 0; b < shape.micro; ++b) {
    const std::int64_t sample = number * shape.micro + b;
    batch.samples.data<std::int64_t>()[b] = sample;
    for (std::int64_t t = 0; t < shape.length; ++t) {
      const std::int64_t row = b * shape.length + t;
      const bool masked = (sample * 3 + t) % 11 == 0 || (sample % 3 == 0 && t < 4);
      tokens.data<std::int32_t>()[row] = token(sample, t);
      batch.target_count += masked ? 0 : 1;
      targets.data<std::int32_t>()[row] = masked ? ops::kMaskedTarget : token(sample, t + 1);
    }
  }
  return batch;
}

}  // namespace

std::vector<nn::MicroBatch> make_batches(ops::Context& ctx, const BatchShape& shape, int first,
                                         int count, bool training) {
  std::vector<nn::MicroBatch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(make_batch(ctx, shape, first + i, training));
  return batches;
}

}  // namespace trireme::testing
