// A MobileNetV2 small enough to train on every grid in a test, and pictures for it.
#pragma once

#include <vector>

#include "trireme/ops/elementwise.h"

#include "models/mobilenet_v2/mobilenet_v2.h"
#include "support/ops_testing.h"

namespace trireme::testing {

// It has a block of each kind: without expansion, with a stride, and with a residual.
inline models::MobileNetV2Config small_mobilenet() {
  return {.classes = 7,
          .image = 12,
          .stem = models::MobileNetV2Config::Stem::kCifar,
          .width_multiple = 0.5,
          .dropout = 0.0,
          .label_smoothing = 0.1,
          .stages = {{1, 16, 1, 1}, {6, 24, 2, 2}, {4, 32, 2, 2}}};
}

// Micro-batch `number` of `samples` pictures, which depend on the sample alone.
inline nn::MicroBatch make_picture_batch(ops::Context& ctx, const models::MobileNetV2Config& model,
                                         std::int64_t samples, int number, bool training) {
  const std::int64_t elements = model.image * model.image * 3;
  Values pixels;
  std::vector<std::int64_t> numbers;
  std::vector<std::int32_t> targets;
  for (std::int64_t b = 0; b < samples; ++b) {
    const std::int64_t sample = number * samples + b;
    const Values one = random_values(100 + static_cast<std::uint64_t>(sample), elements);
    pixels.insert(pixels.end(), one.begin(), one.end());
    numbers.push_back(sample);
    targets.push_back(static_cast<std::int32_t>(sample * 5 % model.classes));
  }
  nn::MicroBatch batch;
  batch.batch = samples;
  batch.length = 1;
  batch.training = training;
  batch.fields.set(nn::kPixels,
                   make_tensor(ctx, pixels, {samples, model.image, model.image, 3}, DType::kF32));
  batch.fields.set(nn::kTargets, make_tensor(ctx, targets));
  batch.samples = make_tensor(ctx, numbers);
  batch.target_count = samples;
  batch.loss_sum = make_tensor(ctx, 0.0);
  batch.correct = make_tensor(ctx, std::vector<std::int64_t>{0, 0});
  return batch;
}

}  // namespace trireme::testing
