// fp32 functions that kernels share.
#pragma once

#include "ops/gpu/device_code.h"

namespace trireme::ops::gpu {

__device__ inline float infinity() {
  return __uint_as_float(0x7f800000u);
}

// e^x for x = a score minus the maximum. 0 for x below -87.3, where the result would be denormal,
// as on a CPU.
__device__ inline float exp_of_difference(float x) {
  return x < -87.3f ? 0.0f : expf(x);
}

// tanh x to a relative error of 1e-6, as on a CPU. tanhf takes more registers.
__device__ inline float tanh_of(float x) {
  const float square = x * x;
  float series = 62.0f / 2835;
  series = series * square - 17.0f / 315;
  series = series * square + 2.0f / 15;
  series = series * square - 1.0f / 3;
  const float small = x + x * square * series;
  const float large = 1.0f - 2.0f / (1.0f + expf(2.0f * x));
  return square < 0.06f ? small : large;
}

}  // namespace trireme::ops::gpu
