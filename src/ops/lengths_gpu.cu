// Bound by memory, but for sums of a few numbers.
#include "ops/device_ops.h"
#include "ops/gpu/chunks.h"
#include "ops/gpu/reduce.h"
#include "ops/gpu/segments.h"
#include "ops/squares.h"
#include "ops/step_length.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kLimbThreads = 96;  // at least kExactLimbs
constexpr int kSharesAtOnce = 8;

__global__ void __launch_bounds__(kThreads)
    divide_by_root_kernel(const float* x, const double* sum, float epsilon, View<Any> y,
                          std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  const auto factor = static_cast<float>(1.0 / (sqrt(*sum) + static_cast<double>(epsilon)));
  float values[kChunk];
  load_chunk(x + at, left, vector, values);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) values[i] *= factor;
  y.store(at, left, vector, values);
}

__global__ void __launch_bounds__(kThreads)
    clip_values_kernel(const StepState* state, float* gradient, float limit,
                       std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
  const float most = limit_in_memory(*state, limit), g = gradient[at];
  gradient[at] = g > most ? most : g < -most ? -most : g;
}

__global__ void __launch_bounds__(kThreads)
    clip_to_norm_kernel(const StepState* state, float* gradient, const double* sum, float limit,
                        std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < elements) gradient[at] *= factor_to_norm(*state, *sum, limit);
}

// x begins `before` elements after the first unit does.
struct SquaresSegment {
  const float* x;
  std::int64_t before, elements;
};
using SquaresTable = SegmentTable<SquaresSegment, kSquaresAtOnce>;

// A warp adds up a unit; they are the work of a segment.
__global__ void __launch_bounds__(kThreads) squares_kernel(const SquaresTable table, double* sums) {
  static_assert(kFitsInArguments<SquaresTable>);
  const std::int64_t unit =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (unit >= table.work) return;  // the whole warp
  const int segment = table.find(unit);
  const float* const x = table.segments[segment].x;
  const std::int64_t elements = table.segments[segment].elements;
  const std::int64_t begin = (unit - table.begin[segment]) * kSquaresUnit -
                             table.segments[segment].before + threadIdx.x % 32;
  double sum = 0.0;
#pragma unroll
  for (int i = 0; i < kSquaresUnit / 32; ++i) {
    const std::int64_t at = begin + i * 32;
    const double value = 0 <= at && at < elements ? static_cast<double>(x[at]) : 0.0;
    sum += value * value;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[unit] = sum;
}

// Each thread makes one limb of the exact sum of the block's share of the units. The threads fetch
// a tile of units together: one after the other, each would wait for memory again.
__global__ void __launch_bounds__(kLimbThreads)
    exact_shares_kernel(const double* sums, std::int64_t units, std::int64_t* shares) {
  TRIREME_SHARED(std::uint64_t, tile, kLimbThreads);
  const int limb = static_cast<int>(threadIdx.x);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kLimbThreads;
  std::int64_t total = 0;
  for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kLimbThreads; begin < units;
       begin += step) {
    const std::int64_t unit = begin + limb;
    if (unit < units) memcpy(&tile[limb], sums + unit, sizeof(double));
    __syncthreads();
    const int count = static_cast<int>(units - begin < kLimbThreads ? units - begin : kLimbThreads);
#pragma unroll 4
    for (int i = 0; i < count; ++i) total += exact_limb(tile[i], limb);
    __syncthreads();
  }
  if (limb < kExactLimbs)
    shares[static_cast<std::int64_t>(blockIdx.x) * kExactLimbs + limb] = total;
}

// One block, of kLimbThreads x kSharesAtOnce threads.
__global__ void __launch_bounds__(kLimbThreads* kSharesAtOnce)
    add_shares_kernel(const std::int64_t* shares, int count, std::int64_t* limbs) {
  TRIREME_SHARED(std::int64_t, parts, kLimbThreads * kSharesAtOnce);
  const int limb = static_cast<int>(threadIdx.x), lane = static_cast<int>(threadIdx.y);
  std::int64_t total = 0;
  if (limb < kExactLimbs) {
#pragma unroll 4
    for (int i = lane; i < count; i += kSharesAtOnce) total += shares[i * kExactLimbs + limb];
  }
  parts[lane * kLimbThreads + limb] = total;
  __syncthreads();
  if (lane != 0 || limb >= kExactLimbs) return;
  for (int i = 1; i < kSharesAtOnce; ++i) total += parts[i * kLimbThreads + limb];
  limbs[limb] += total;
}

// A block for each sum, of one thread.
__global__ void round_exact_sum_kernel(std::int64_t* limbs, double* sums) {
  sums[blockIdx.x] = take_exact_value(limbs + static_cast<std::int64_t>(blockIdx.x) * kExactLimbs);
}

__global__ void step_length_kernel(StepLength rule, const StepState* state, const double* squares,
                                   float* length) {
  *length = length_of_step(rule, *state, squares[0], squares[1]);
}

__global__ void finish_norm_kernel(const double* sum, float clip, double* norm, StepState* state) {
  const double value = sqrt(*sum) * static_cast<double>(state->gradient_scale / state->loss_scale);
  *norm = value;
  state->squares_exponent = exponent_above(*sum);
  state->finite = isfinite(value) ? 1 : 0;
  state->updates += state->finite;
  state->rate_squares += square_of_rate(*state);
  const bool clips = clip > 0.0f && value > static_cast<double>(clip);
  state->clip_factor = clips ? static_cast<float>(static_cast<double>(clip) / value) : 1.0f;
}

}  // namespace

void step_length(Context& ctx, const StepLength& rule, const Tensor& squares,
                 const Tensor& length) {
  launch(step_length_kernel, 1, 1, 0, ctx.stream, rule,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<double>(squares),
         device_data<float>(length));
}

void divide_by_root(Context& ctx, const Tensor& x, const Tensor& sum, float epsilon,
                    const Tensor& y) {
  const std::int64_t elements = x.elements();
  launch(divide_by_root_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream,
         device_data<float>(x), device_data<double>(sum), epsilon, View<Any>(y), elements,
         vectors_fit({&x, &y}, kChunk));
}

void clip_values(Context& ctx, const Tensor& gradient, float limit) {
  const std::int64_t elements = gradient.elements();
  launch(clip_values_kernel, extent(blocks_for(elements, kThreads)), kThreads, 0, ctx.stream,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(gradient), limit,
         elements);
}

void clip_to_norm(Context& ctx, const Tensor& gradient, const Tensor& sum, float limit) {
  const std::int64_t elements = gradient.elements();
  launch(clip_to_norm_kernel, extent(blocks_for(elements, kThreads)), kThreads, 0, ctx.stream,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(gradient),
         device_data<double>(sum), limit, elements);
}

void add_sum_of_squares(Context& ctx, std::span<const SquaresPart> parts, const Tensor& limbs) {
  for_some(parts, kSquaresAtOnce, [&](std::span<const SquaresPart> some) {
    SquaresTable table;
    for (const auto& [x, first] : some) {
      table.add({device_data<float>(x), first % kSquaresUnit, x.elements()},
                units_of_squares(first, x.elements()));
    }
    const std::int64_t units = table.work, count = shares_of_units(units);
    if (units == 0) return;
    const Tensor sums = sums_of_units(ctx, units), shares = limbs_of_shares(ctx, units);
    launch(squares_kernel, extent(blocks_for(units, kThreads / 32)), kThreads, 0, ctx.stream, table,
           device_data<double>(sums));
    launch(exact_shares_kernel, extent(count), kLimbThreads, 0, ctx.stream,
           device_data<double>(sums), units, device_data<std::int64_t>(shares));
    launch(add_shares_kernel, 1, dim3(kLimbThreads, kSharesAtOnce), 0, ctx.stream,
           device_data<std::int64_t>(shares), static_cast<int>(count),
           device_data<std::int64_t>(limbs));
  });
}

void round_exact_sum(Context& ctx, const Tensor& limbs, const Tensor& sums) {
  launch(round_exact_sum_kernel, extent(sums.elements()), 1, 0, ctx.stream,
         device_data<std::int64_t>(limbs), device_data<double>(sums));
}

void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm) {
  launch(finish_norm_kernel, 1, 1, 0, ctx.stream, device_data<double>(sum), clip,
         device_data<double>(norm), ctx.step_state.get());
}

}  // namespace trireme::ops::gpu
