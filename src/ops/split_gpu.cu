#include "ops/device_ops.h"
#include "ops/gpu/chunks.h"
#include "ops/gpu/masters.h"

namespace trireme::ops::gpu {
namespace {

__global__ void __launch_bounds__(kThreads)
    split_kernel(const float* x, Masters<Split> to, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  float values[kChunk];
  load_chunk(x + at, left, vector, values);
  to.store(at, left, vector, values);
}

__global__ void __launch_bounds__(kThreads)
    join_kernel(Masters<Split> from, float* y, std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  float values[kChunk];
  from.load(at, left, vector, values);
  store_chunk(y + at, left, vector, values);
}

}  // namespace

void split(Context& ctx, const Tensor& x, const Tensor& high, const Tensor& low) {
  const std::int64_t elements = x.elements();
  launch(split_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream,
         static_cast<const float*>(device_data<float>(x)), Masters<Split>(low, high), elements,
         vectors_fit({&x, &high, &low}, kChunk));
}

void join(Context& ctx, const Tensor& high, const Tensor& low, const Tensor& y) {
  const std::int64_t elements = y.elements();
  launch(join_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream,
         Masters<Split>(low, high), device_data<float>(y), elements,
         vectors_fit({&y, &high, &low}, kChunk));
}

}  // namespace trireme::ops::gpu
