#include "ops/cpu/isa/simd_math.h"
#include "ops/cpu/isa/tables.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

void adamw(const AdamWFactors& f, float* master, const float* gradient, float* exp_avg,
           float* exp_avg_sq, std::int64_t n) {
  const AdamWFactors c = f;  // a copy: stores cannot change it, so the loop need not read it again
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_factor + c.l2_penalty * master[i];
    const float m = c.beta1 * exp_avg[i] + (1.0f - c.beta1) * g;
    const float v = c.beta2 * exp_avg_sq[i] + (1.0f - c.beta2) * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = __builtin_sqrtf(v) * c.inverse_root_bias2 + c.epsilon;
    master[i] = master[i] * c.keep - c.step_size * m / denominator;
  }
}

void sgd(const SgdFactors& f, float* master, const float* gradient, float* velocity,
         std::int64_t n) {
  const SgdFactors c = f;
  if (velocity == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = gradient[i] * c.gradient_factor + c.l2_penalty * master[i];
      master[i] -= c.learning_rate * (g + c.weight_decay * master[i]);
    }
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_factor + c.l2_penalty * master[i];
    const float v = c.momentum * velocity[i] + g;
    const float d = c.nesterov ? g + c.momentum * v : v;
    velocity[i] = v;
    master[i] -= c.learning_rate * (d + c.weight_decay * master[i]);
  }
}

void lion(const LionFactors& f, float* master, const float* gradient, float* exp_avg,
          std::int64_t n) {
  const LionFactors c = f;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_factor;
    const float u = c.beta1 * exp_avg[i] + (1.0f - c.beta1) * g;
    const float sign = u > 0.0f ? 1.0f : u < 0.0f ? -1.0f : u;  // of NaN: NaN
    master[i] -= c.learning_rate * (sign + c.weight_decay * master[i]);
    exp_avg[i] = c.beta2 * exp_avg[i] + (1.0f - c.beta2) * g;
  }
}

void average(const MomentumFactors& f, const float* gradient, float* average, float* direction,
             std::int64_t n) {
  const MomentumFactors c = f;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_factor;
    const float m = c.momentum * average[i] + (1.0f - c.momentum) * g;
    average[i] = m;
    direction[i] = c.nesterov ? c.momentum * m + (1.0f - c.momentum) * g : m;
  }
}

void step_along(float keep, float step, float* master, const float* direction, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) master[i] = master[i] * keep - step * direction[i];
}

// 32 independent sums: a single one would wait for each addition.
double sum_of_squares(const float* x, std::int64_t n) {
  constexpr std::int64_t kSums = 32;
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma omp simd
    for (std::int64_t j = 0; j < kSums; ++j) {
      const auto v = static_cast<double>(x[i + j]);
      sums[j] += v * v;
    }
  }
  for (std::int64_t j = 0; i + j < n; ++j) {
    const auto v = static_cast<double>(x[i + j]);
    sums[j] += v * v;
  }
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

extern const UpdateKernels kUpdate = {adamw, sgd, lion, average, step_along, sum_of_squares};

}  // namespace trireme::ops::cpu::TRIREME_ISA
