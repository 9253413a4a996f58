// The logits of models that classify pictures, beside their loss.
#pragma once

#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "trireme/nn/block_run.h"
#include "trireme/nn/fields.h"
#include "trireme/parallel/stage.h"

#include "support/ops_testing.h"

namespace trireme::testing {

// A stage of the whole model, without smoothed labels: without targets it returns the logits that
// its loss of the micro-batch is made of.
inline void expect_logits_of_loss(ops::Context& ctx, const parallel::Stage& stage,
                                  const nn::MicroBatch& batch, std::int64_t classes) {
  const auto targets = batch.field(nn::kTargets).span<std::int32_t>();
  nn::BlockRun(ctx, stage.blocks(0), batch, nn::BlockRun::Keep::kNothing).forward({});
  nn::MicroBatch without = batch;
  without.fields = {};
  without.fields.set(nn::kPixels, batch.field(nn::kPixels));
  const Tensors logits =
      nn::BlockRun(ctx, stage.blocks(0), without, nn::BlockRun::Keep::kNothing).forward({});
  ASSERT_EQ(logits.size(), 1u);
  ASSERT_EQ(logits[0].shape(), (Shape{std::ssize(targets), classes}));
  ASSERT_EQ(logits[0].dtype(), DType::kF32);
  double loss = 0.0;
  const Values values = values_of(logits[0]);
  auto row = values.begin();
  for (const std::int32_t target : targets) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(row[c]);
    loss += std::log(sum) - row[target];
    row += classes;
  }
  EXPECT_NEAR(batch.loss_sum.data<double>()[0], loss, 1e-5 * loss);
}

}  // namespace trireme::testing
