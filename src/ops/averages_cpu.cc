#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/device_ops.h"
#include "ops/step_length.h"

namespace trireme::ops::cpu {
namespace {}  // namespace

void count_average(Context& ctx, const WeightAverage& rule) {
  on_this_thread(ctx, [&] {
    if (counts_in_average(rule, *ctx.step_state)) ++ctx.step_state->averaged;
  });
}

void average_weights(Context& ctx, const WeightAverage& rule, const Tensor& value,
                     const Tensor& average) {
  if (ctx.step_state->finite == 0) return;
  const float share = share_of_weights(rule, *ctx.step_state);
  parallel_ranges(ctx, value.elements(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().update.average_weights(share, value.data<float>() + begin,
                                     average.data<float>() + begin, end - begin);
  });
}

void commit_state(Context& ctx, float keep, const Tensor& proposed, const Tensor& value) {
  on_this_thread(ctx, [&] {
    float *more = proposed.data<float>(), *to = value.data<float>();
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      if (ctx.step_state->finite != 0) to[i] = keep * to[i] + more[i];
      more[i] = 0.0f;
    }
  });
}

}  // namespace trireme::ops::cpu
