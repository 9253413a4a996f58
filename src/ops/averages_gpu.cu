#include "ops/device_ops.h"
#include "ops/gpu/chunks.h"
#include "ops/step_length.h"

namespace trireme::ops::gpu {
namespace {

__global__ void count_average_kernel(WeightAverage rule, StepState* state) {
  if (counts_in_average(rule, *state)) ++state->averaged;
}

__global__ void __launch_bounds__(kThreads)
    average_weights_kernel(WeightAverage rule, const StepState* state, const float* value,
                           float* average, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (state->finite == 0 || left <= 0) return;
  const float share = share_of_weights(rule, *state), keep = 1.0f - share;
  float v[kChunk], a[kChunk];
  load_chunk(value + at, left, vector, v);
  load_chunk(average + at, left, vector, a);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) a[i] = keep * a[i] + share * v[i];
  store_chunk(average + at, left, vector, a);
}

__global__ void __launch_bounds__(kThreads)
    commit_state_kernel(const StepState* state, float keep, float* proposed, float* value,
                        std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
  if (state->finite != 0) value[at] = keep * value[at] + proposed[at];
  proposed[at] = 0.0f;
}

}  // namespace

void count_average(Context& ctx, const WeightAverage& rule) {
  launch(count_average_kernel, 1, 1, 0, ctx.stream, rule, ctx.step_state.get());
}

void average_weights(Context& ctx, const WeightAverage& rule, const Tensor& value,
                     const Tensor& average) {
  const std::int64_t elements = value.elements();
  launch(average_weights_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream, rule,
         static_cast<const StepState*>(ctx.step_state.get()), device_data<float>(value),
         device_data<float>(average), elements, vectors_fit({&value, &average}, kChunk));
}

void commit_state(Context& ctx, float keep, const Tensor& proposed, const Tensor& value) {
  const std::int64_t elements = value.elements();
  launch(commit_state_kernel, extent(blocks_for(elements, kThreads)), kThreads, 0, ctx.stream,
         static_cast<const StepState*>(ctx.step_state.get()), keep, device_data<float>(proposed),
         device_data<float>(value), elements);
}

}  // namespace trireme::ops::gpu
