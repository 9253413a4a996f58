#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/base/exact_sum.h"

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"
#include "ops/squares.h"
#include "ops/step_length.h"

namespace trireme::ops::cpu {
namespace {}  // namespace

void step_length(Context& ctx, const StepLength& rule, const Tensor& squares,
                 const Tensor& length) {
  on_this_thread(ctx, [&] {
    const double* of = squares.data<double>();
    length.data<float>()[0] = length_of_step(rule, *ctx.step_state, of[0], of[1]);
  });
}

void divide_by_root(Context& ctx, const Tensor& x, const Tensor& sum, float epsilon,
                    const Tensor& y) {
  parallel_ranges(ctx, x.elements(), kStageElements, [&](std::int64_t begin, std::int64_t end) {
    const double root = std::sqrt(sum.data<double>()[0]);
    const auto factor = static_cast<float>(1.0 / (root + static_cast<double>(epsilon)));
    Stage stage;
    float* to = write_place(y, begin, stage.values);
    const float* from = x.data<float>() + begin;
    if (from != to) std::copy_n(from, end - begin, to);
    kernels().elementwise.scale(to, factor, end - begin);
    write_back(y, begin, end - begin, to);
  });
}

void clip_values(Context& ctx, const Tensor& gradient, float limit) {
  const float most = limit_in_memory(*ctx.step_state, limit);
  parallel_ranges(ctx, gradient.elements(), kElementGrain,
                  [&](std::int64_t begin, std::int64_t end) {
                    float* g = gradient.data<float>();
                    for (std::int64_t i = begin; i < end; ++i) {
                      g[i] = g[i] > most ? most : g[i] < -most ? -most : g[i];
                    }
                  });
}

void clip_to_norm(Context& ctx, const Tensor& gradient, const Tensor& sum, float limit) {
  parallel_ranges(
      ctx, gradient.elements(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        const float factor = factor_to_norm(*ctx.step_state, sum.data<double>()[0], limit);
        kernels().elementwise.scale(gradient.data<float>() + begin, factor, end - begin);
      });
}

namespace {

void add_squares(Context& ctx, const Tensor& x, std::int64_t first, ExactSum& exact) {
  const std::int64_t n = x.elements(), units = units_of_squares(first, n);
  const std::int64_t begin = -(first % kSquaresUnit);  // of the first unit in x
  std::vector<double> sums(ctx.dry ? 0 : static_cast<std::size_t>(units));
  parallel_ranges(
      ctx, units, kElementGrain / kSquaresUnit, [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t unit = from; unit < to; ++unit) {
          const std::int64_t at = std::max<std::int64_t>(begin + unit * kSquaresUnit, 0);
          const std::int64_t end = std::min(begin + (unit + 1) * kSquaresUnit, n);
          sums[static_cast<std::size_t>(unit)] =
              kernels().update.sum_of_squares(x.data<float>() + at, end - at);
        }
      });
  for (const double sum : sums) exact.add(sum);
}

}  // namespace

void add_sum_of_squares(Context& ctx, std::span<const SquaresPart> parts, const Tensor& limbs) {
  ExactSum exact;
  for (const auto& [x, first] : parts) add_squares(ctx, x, first, exact);
  on_this_thread(ctx, [&] {
    for (int i = 0; i < kExactLimbs; ++i) {
      limbs.data<std::int64_t>()[i] += exact.limbs()[static_cast<std::size_t>(i)];
    }
  });
}

void round_exact_sum(Context& ctx, const Tensor& limbs, const Tensor& sums) {
  on_this_thread(ctx, [&] {
    for (std::int64_t i = 0; i < sums.elements(); ++i) {
      sums.data<double>()[i] = take_exact_value(limbs.data<std::int64_t>() + i * kExactLimbs);
    }
  });
}

void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm) {
  StepState& state = *ctx.step_state;
  double value = 0.0;
  on_this_thread(ctx, [&] {
    state.squares_exponent = exponent_above(sum.data<double>()[0]);
    value = std::sqrt(sum.data<double>()[0]) *
            static_cast<double>(state.gradient_scale / state.loss_scale);
    norm.data<double>()[0] = value;
  });
  state.finite = std::isfinite(value) ? 1 : 0;
  state.updates += state.finite;
  state.rate_squares += square_of_rate(state);
  const bool clips = clip > 0.0f && value > static_cast<double>(clip);
  state.clip_factor = clips ? static_cast<float>(static_cast<double>(clip) / value) : 1.0f;
}

}  // namespace trireme::ops::cpu
