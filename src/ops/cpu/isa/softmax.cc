#include "ops/cpu/isa/simd_math.h"
#include "ops/cpu/isa/tables.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

// A NaN is never the maximum, but makes the sum NaN.
void statistics(const float* x, std::int64_t n, float* maximum, float* sum) {
  float m = -__builtin_inff();
#pragma omp simd reduction(max : m)
  for (std::int64_t i = 0; i < n; ++i) m = x[i] > m ? x[i] : m;
  float s = 0.0f;
#pragma omp simd reduction(+ : s)
  for (std::int64_t i = 0; i < n; ++i) s += exp_of_difference(x[i] - m);
  *maximum = m;
  *sum = s;
}

void normalize(const float* x, float maximum, float sum, float* y, std::int64_t n) {
  const float inverse = 1.0f / sum;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = exp_of_difference(x[i] - maximum) * inverse;
}

void unbend(const float* x, float scale, float cap, float* dx, std::int64_t n) {
  const float inverse = cap > 0.0f ? 1.0f / cap : 0.0f;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float share = x[i] * inverse;
    dx[i] *= scale * (1.0f - share * share);
  }
}

}  // namespace

extern const SoftmaxKernels kSoftmax = {statistics, normalize, unbend};

}  // namespace trireme::ops::cpu::TRIREME_ISA
