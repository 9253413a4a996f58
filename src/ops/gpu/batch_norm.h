// What kernels need of batch norms.
#pragma once

#include "trireme/ops/batch_norm.h"

#include "ops/gpu/view.h"

namespace trireme::ops::gpu {

// A norm as kernels see it. Without moments it is none.
struct Norm {
  const float* moments = nullptr;
  View<Any> weight, bias;
  float epsilon = 0.0f, low = 0.0f, high = 0.0f;

  __device__ bool defined() const { return moments != nullptr; }
  __device__ float rstd(float variance) const { return 1.0f / sqrtf(variance + epsilon); }
  __device__ float clamped(float value) const {
    const float above = value < low ? low : value;
    return above > high ? high : above;
  }
  // Whether the gradient goes past the clamp.
  __device__ bool passes(float value) const { return !(value <= low || value >= high); }
};

// What a thread needs of its chunk of columns.
struct Columns {
  float mean[kChunk], rstd[kChunk], scale[kChunk], bias[kChunk];

  __device__ Columns(const Norm& norm, std::int64_t column, std::int64_t columns) {
    const std::int64_t left = columns - column;
    load_chunk(norm.moments + column, left, false, mean);
    load_chunk(norm.moments + columns + column, left, false, rstd);
    norm.weight.load(column, left, false, scale);
    norm.bias.load(column, left, false, bias);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      rstd[i] = norm.rstd(rstd[i]);
      scale[i] *= rstd[i];
    }
  }
};

inline Norm norm_of(const BatchNorm& norm) {
  if (!norm.moments.defined()) return {};
  return {device_data<float>(norm.moments),
          View<Any>(norm.weight),
          View<Any>(norm.bias),
          norm.epsilon,
          norm.clamp.low,
          norm.clamp.high};
}

}  // namespace trireme::ops::gpu
