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

}  // namespace trireme::ops::gpu
