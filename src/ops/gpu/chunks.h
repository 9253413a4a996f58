// A grid over elements, of which each thread has a chunk.
#pragma once

#include "ops/gpu/view.h"

namespace trireme::ops::gpu {

inline constexpr int kThreads = 256;

inline unsigned blocks_of_chunks(std::int64_t elements) {
  return extent(blocks_for(elements, kThreads * kChunk));
}
__device__ inline std::int64_t chunk_of_thread() {
  return (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kChunk;
}

}  // namespace trireme::ops::gpu
