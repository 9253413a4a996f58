#include "ops/cpu/isa/simd_math.h"
#include "ops/cpu/isa/tables.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

// Makes two passes over a row, which stays in the cache, so that the variance does not suffer from
// cancellation.
void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, float* y,
                float* mean, float* rstd, std::int64_t n) {
  const float inverse = 1.0f / static_cast<float>(n);
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  const float m = sum * inverse;
  float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - m) * (x[i] - m);
  const float r = 1.0f / __builtin_sqrtf(squares * inverse + epsilon);
  if (bias != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - m) * r * weight[i] + bias[i];
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - m) * r * weight[i];
  }
  *mean = m;
  *rstd = r;
}

// With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - h mean(g h)) + residual.
void layer_norm_backward_input(const float* dy, const float* x, const float* weight, float mean,
                               float rstd, const float* residual, float* dx, std::int64_t n) {
  float sum_g = 0.0f;
  float sum_gh = 0.0f;
#pragma omp simd reduction(+ : sum_g, sum_gh)
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = dy[i] * weight[i];
    sum_g += g;
    sum_gh += g * ((x[i] - mean) * rstd);
  }
  const float mean_g = sum_g / static_cast<float>(n);
  const float mean_gh = sum_gh / static_cast<float>(n);
  if (residual != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      dx[i] = rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_gh) + residual[i];
    }
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_gh);
  }
}

void layer_norm_backward_weight(const float* dy, const float* x, float mean, float rstd,
                                float* dweight, float* dbias, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dweight[i] += dy[i] * ((x[i] - mean) * rstd);
  if (dbias == nullptr) return;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dbias[i] += dy[i];
}

void rms_norm(const float* x, const float* weight, float epsilon, float* y, float* rstd,
              std::int64_t n) {
  float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const float r = 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * r * weight[i];
  *rstd = r;
}

// With h = x rstd and g = dy weight: dx = rstd (g - h mean(g h)) + residual.
void rms_norm_backward_input(const float* dy, const float* x, const float* weight, float rstd,
                             const float* residual, float* dx, std::int64_t n) {
  float sum_gh = 0.0f;
#pragma omp simd reduction(+ : sum_gh)
  for (std::int64_t i = 0; i < n; ++i) sum_gh += dy[i] * weight[i] * (x[i] * rstd);
  const float mean_gh = sum_gh / static_cast<float>(n);
  if (residual != nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      dx[i] = rstd * (dy[i] * weight[i] - x[i] * rstd * mean_gh) + residual[i];
    }
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = rstd * (dy[i] * weight[i] - x[i] * rstd * mean_gh);
  }
}

void rms_norm_backward_weight(const float* dy, const float* x, float rstd, float* dweight,
                              std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dweight[i] += dy[i] * (x[i] * rstd);
}

void scale_by(const float* x, const float* weight, float rstd, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * weight[i];
}

float sum_of_products(const float* a, const float* b, const float* c, std::int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i] * c[i];
  return sum;
}

void rms_gradient(const float* dy, const float* weight, const float* x, float rstd, float pull,
                  float* dx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = rstd * (dy[i] * weight[i]) - x[i] * pull;
}

}  // namespace

extern const NormKernels kNorm = {layer_norm, layer_norm_backward_input, layer_norm_backward_weight,
                                  rms_norm,   rms_norm_backward_input,   rms_norm_backward_weight,
                                  scale_by,   sum_of_products,           rms_gradient};

}  // namespace trireme::ops::cpu::TRIREME_ISA
