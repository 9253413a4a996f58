#include "ops/device_ops.h"
#include "ops/gpu/math.h"
#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// A part's maximum, and its sum of exp(x - maximum). A NaN is never the maximum, but makes the sum
// NaN. The empty part is (-infinity, 0).
struct Softmax {
  float maximum, sum;
};

__device__ inline float rescaled(const Softmax& part, float maximum) {
  return part.maximum == maximum ? part.sum : part.sum * exp_of_difference(part.maximum - maximum);
}
__device__ inline Softmax merged(const Softmax& a, const Softmax& b) {
  const float maximum = a.maximum > b.maximum ? a.maximum : b.maximum;
  return {maximum, rescaled(a, maximum) + rescaled(b, maximum)};
}

__device__ inline Softmax block_softmax(Softmax part) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Softmax other = {__shfl_xor_sync(kAllLanes, part.maximum, offset),
                           __shfl_xor_sync(kAllLanes, part.sum, offset)};
    part = merged(part, other);
  }
  TRIREME_SHARED(Softmax, parts, kWarps);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  Softmax all = parts[0];
  for (int warp = 1; warp < kWarps; ++warp) all = merged(all, parts[warp]);
  return all;
}

struct Classes {
  std::int64_t count, valid, first;
};

// A block takes a row, which it reads once.
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(const float* logits, const std::int32_t* targets, Classes classes,
                      float* row_max, float* row_sum, float* target_logit, bool vector) {
  const std::int64_t row = blockIdx.x;
  const float* x = logits + row * classes.count;
  Softmax mine = {-infinity(), 0.0f};
#pragma unroll 2
  for (std::int64_t at = threadIdx.x * kChunk; at < classes.valid; at += kThreads * kChunk) {
    float values[kChunk];
    const std::int64_t left = classes.valid - at;
    load_chunk(x + at, left, vector, values);
    float maximum = mine.maximum;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < left && values[i] > maximum) maximum = values[i];
    }
    float sum = rescaled(mine, maximum);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < left) sum += exp_of_difference(values[i] - maximum);
    }
    mine = {maximum, sum};
  }
  mine = block_softmax(mine);
  if (threadIdx.x != 0) return;
  row_max[row] = mine.maximum;
  row_sum[row] = mine.sum;
  const std::int32_t target = targets[row];
  const std::int64_t local = target - classes.first;
  const bool here = target != kMaskedTarget && 0 <= local && local < classes.valid;
  target_logit[row] = here ? x[local] : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const float* logits, const std::int32_t* targets, Classes classes,
                    const float* row_max, const float* row_sum, const StepState* state,
                    View<T> dlogits, std::int64_t rows, bool vector) {
  const float scale = state->loss_scale;
  for_chunks(rows, classes.count, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    float values[kChunk] = {};
    const std::int32_t target = targets[row];
    if (target != kMaskedTarget) {
      const float maximum = row_max[row], inverse = 1.0f / row_sum[row];
      const std::int64_t local = target - classes.first;
      load_chunk(logits + row * classes.count + column, left, vector, values);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const std::int64_t at = column + i;
        const float weight = exp_of_difference(values[i] - maximum) * inverse;
        values[i] = at < classes.valid ? (weight - (at == local ? 1.0f : 0.0f)) * scale : 0.0f;
      }
    }
    dlogits.store(row * classes.count + column, left, vector, values);
  });
}

constexpr int kLossThreads = 1024;

// One block, so that the order of the sum depends on its threads alone.
__global__ void __launch_bounds__(kLossThreads)
    loss_sum_kernel(const std::int32_t* targets, const float* row_max, const float* row_sum,
                    const float* target_logit, std::int64_t rows, double* total) {
  double sum = 0.0;
#pragma unroll 4
  for (std::int64_t row = threadIdx.x; row < rows; row += kLossThreads) {
    if (targets[row] == kMaskedTarget) continue;
    sum += log(static_cast<double>(row_sum[row])) + static_cast<double>(row_max[row]) -
           static_cast<double>(target_logit[row]);
  }
  sum = block_sum<kLossThreads / 32>(sum);
  if (threadIdx.x == 0) *total += sum;
}

__global__ void __launch_bounds__(kThreads)
    rescale_kernel(const float* local_max, const float* row_max, float* row_sum,
                   std::int64_t rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row < rows) row_sum[row] *= expf(local_max[row] - row_max[row]);
}

}  // namespace

void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit) {
  const Classes classes = {logits.shape()[1], valid, first_class};
  launch(statistics_kernel, extent(logits.shape()[0]), kThreads, 0, ctx.stream,
         device_data<float>(logits), device_data<std::int32_t>(targets), classes,
         device_data<float>(row_max), device_data<float>(row_sum), device_data<float>(target_logit),
         vectors_fit({&logits}, classes.count));
}

void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits) {
  const std::int64_t rows = logits.shape()[0];
  const Classes classes = {logits.shape()[1], valid, first_class};
  with_type({&dlogits}, [&](auto type) {
    using T = decltype(type);
    launch(gradient_kernel<T>, chunk_grid(rows, classes.count), chunk_block(), 0, ctx.stream,
           device_data<float>(logits), device_data<std::int32_t>(targets), classes,
           device_data<float>(row_max), device_data<float>(row_sum),
           static_cast<const StepState*>(ctx.step_state.get()), View<T>(dlogits), rows,
           vectors_fit({&logits, &dlogits}, classes.count));
  });
}

void softmax_loss_sum(Context& ctx, const Tensor& targets, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& target_logit, const Tensor& sum) {
  launch(loss_sum_kernel, 1, kLossThreads, 0, ctx.stream, device_data<std::int32_t>(targets),
         device_data<float>(row_max), device_data<float>(row_sum), device_data<float>(target_logit),
         targets.elements(), device_data<double>(sum));
}

void softmax_rescale(Context& ctx, const Tensor& local_max, const Tensor& row_max,
                     const Tensor& row_sum) {
  const std::int64_t rows = row_sum.elements();
  launch(rescale_kernel, extent(blocks_for(rows, kThreads)), kThreads, 0, ctx.stream,
         device_data<float>(local_max), device_data<float>(row_max), device_data<float>(row_sum),
         rows);
}

}  // namespace trireme::ops::gpu
