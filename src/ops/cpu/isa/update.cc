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

void schedule_free(const ScheduleFreeStep& f, float* master, const float* gradient, float* gap,
                   float* exp_avg_sq, float* y, std::int64_t n) {
  const ScheduleFreeStep c = f;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_factor;
    const float v = c.beta2 * exp_avg_sq[i] + (1.0f - c.beta2) * g * g;
    exp_avg_sq[i] = v;
    const float here = master[i] + c.part * gap[i];
    const float step = g / (__builtin_sqrtf(v) * c.inverse_root_bias2 + c.epsilon);
    const float next = gap[i] - c.learning_rate * (step + c.weight_decay * here);
    const float x = master[i] + c.share * next;
    const float left = (1.0f - c.share) * next;
    master[i] = x;
    gap[i] = left;
    y[i] = x + c.part * left;
  }
}

void schedule_free_weights(float part, const float* master, const float* gap, float* y,
                           std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = master[i] + part * gap[i];
}

void adamw_direction(const AdamWFactors& f, float weight_decay, const float* master,
                     const float* gradient, float* exp_avg, float* exp_avg_sq, float* direction,
                     std::int64_t n) {
  const AdamWFactors c = f;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_factor;
    const float m = c.beta1 * exp_avg[i] + (1.0f - c.beta1) * g;
    const float v = c.beta2 * exp_avg_sq[i] + (1.0f - c.beta2) * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = __builtin_sqrtf(v) * c.inverse_root_bias2 + c.epsilon;
    direction[i] = c.step_size * m / denominator + weight_decay * master[i];
  }
}

void sgd(const SgdFactors& f, float* master, const float* gradient, float* velocity,
         std::int64_t n) {
  const SgdFactors c = f;
  if (velocity == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = (gradient[i] * c.gradient_factor + c.l2_penalty * master[i]) * c.length;
      master[i] -= c.learning_rate * (g + c.weight_decay * master[i]);
    }
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = (gradient[i] * c.gradient_factor + c.l2_penalty * master[i]) * c.length;
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

void average_weights(float share, const float* value, float* average, std::int64_t n) {
  const float keep = 1.0f - share;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) average[i] = keep * average[i] + share * value[i];
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

// The parts of a square: the first rounds to a multiple of a large unit, the second what is left to
// one of a small unit.
struct Parts {
  double high, low;
};
inline Parts parts_of_square(double high, double low, float x) {
  const auto v = static_cast<double>(x);
  const double square = v * v, first = (square + high) - high;
  return {first, (square - first + low) - low};
}

// No addition rounds, so the order is free.
void add_squares_of_row(double high, double low, const float* x, std::int64_t n, double* sums) {
  constexpr std::int64_t kSums = 32;
  double highs[kSums] = {}, lows[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
#pragma omp simd
    for (std::int64_t j = 0; j < kSums; ++j) {
      const Parts parts = parts_of_square(high, low, x[i + j]);
      highs[j] += parts.high;
      lows[j] += parts.low;
    }
  }
  for (std::int64_t j = 0; i + j < n; ++j) {
    const Parts parts = parts_of_square(high, low, x[i + j]);
    highs[j] += parts.high;
    lows[j] += parts.low;
  }
  for (std::int64_t j = 0; j < kSums; ++j) {
    sums[0] += highs[j];
    sums[1] += lows[j];
  }
}

void add_squares_to_columns(double high, double low, const float* x, std::int64_t n, double* highs,
                            double* lows) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Parts parts = parts_of_square(high, low, x[i]);
    highs[i] += parts.high;
    lows[i] += parts.low;
  }
}

void divide_by_columns(const LineFactors& f, const float* columns, const float* gradient,
                       float* direction, std::int64_t n) {
  const LineFactors c = f;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float product = c.row * columns[i];
    const float square = product > c.least ? product : c.least;
    direction[i] = gradient[i] * c.gradient_factor / __builtin_sqrtf(square);
  }
}

void divide_by_average(const AverageFactors& f, const float* gradient, float* average,
                       float* direction, std::int64_t n) {
  const AverageFactors c = f;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_factor;
    const float v = average[i] + c.share * (g * g - average[i]);
    average[i] = v;
    const float square = v > c.least ? v : c.least;
    direction[i] = g / __builtin_sqrtf(square);
  }
}

}  // namespace

extern const UpdateKernels kUpdate = {adamw,
                                      sgd,
                                      lion,
                                      schedule_free,
                                      schedule_free_weights,
                                      adamw_direction,
                                      average,
                                      step_along,
                                      average_weights,
                                      sum_of_squares,
                                      add_squares_of_row,
                                      add_squares_to_columns,
                                      divide_by_columns,
                                      divide_by_average};

}  // namespace trireme::ops::cpu::TRIREME_ISA
