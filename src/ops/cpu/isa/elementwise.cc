#include "ops/cpu/isa/simd_math.h"
#include "ops/cpu/isa/tables.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

constexpr float kGeluScale = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

void from_bf16(const std::uint16_t* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = bf16_to_fp32(x[i]);
}

void to_bf16(const float* x, std::uint16_t* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = fp32_to_bf16(x[i]);
}

void from_fp16(const std::uint16_t* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = fp16_to_fp32(x[i]);
}

void to_fp16(const float* x, std::uint16_t* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = fp32_to_fp16(x[i]);
}

void split(const float* x, std::uint16_t* high, std::uint16_t* low, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t word = word_to_split(x[i]);
    high[i] = static_cast<std::uint16_t>((word + 0x8000u) >> 16);
    low[i] = static_cast<std::uint16_t>(word & 0xffffu);
  }
}

void join(const std::uint16_t* high, const std::uint16_t* low, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = split_to_fp32(high[i], low[i]);
}

void add(const float* a, const float* b, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void scale(float* x, float factor, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void bend(float* x, std::int64_t n, float scale, float cap) {
  const float factor = scale / cap;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] = cap * tanh_fp32(factor * x[i]);
}

// (1 + tanh(u)) / 2 = sigmoid(2 u): no cancellation where tanh(u) nears -1.
TRIREME_INLINE float gelu_of(float v) {
  const float u = kGeluScale * (v + kGeluCubic * v * v * v);
  return v * sigmoid_fp32(2.0f * u);
}

// GELU and its derivative at v.
struct Gelu {
  float value, slope;
};
TRIREME_INLINE Gelu gelu_pair(float v) {
  const float u = kGeluScale * (v + kGeluCubic * v * v * v);
  const Sigmoid s = sigmoid_pair(2.0f * u);
  const float du = kGeluScale * (1.0f + 3.0f * kGeluCubic * v * v);
  return {v * s.value, s.value + 2.0f * v * s.value * s.rest * du};
}

void gelu(const float* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = gelu_of(x[i]);
}

void gelu_backward(const float* x, const float* dy, float* dx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * gelu_pair(x[i]).slope;
}

void geglu(const float* gate, const float* up, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = gelu_of(gate[i]) * up[i];
}

void geglu_backward(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                    std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Gelu at = gelu_pair(gate[i]);
    const float d = dy[i];
    dgate[i] = d * up[i] * at.slope;
    dup[i] = d * at.value;
  }
}

// exp(z^2) erfc(z) for z = |x| / sqrt(2), by a polynomial in t = 1 / (1 + 0.3 z) that we fitted at
// Chebyshev nodes: a relative error of 3e-7.
TRIREME_INLINE float scaled_erfc(float z) {
  const float t = 1.0f / (1.0f + 0.3f * z);
  float p = -0.130069911f;
  p = p * t + 0.487922043f;
  p = p * t - 0.516434133f;
  p = p * t + 0.551528752f;
  p = p * t - 0.0965347812f;
  p = p * t + 0.215368554f;
  p = p * t + 0.148328558f;
  p = p * t + 0.170701042f;
  p = p * t + 0.169189811f;
  return p * t;
}

// The normal distribution at x, and its density times sqrt(2 pi).
struct Normal {
  float below, density;
};
TRIREME_INLINE Normal normal(float x) {
  const float size = x < 0.0f ? -x : x;
  const float density = exp_of_difference(-0.5f * x * x);
  const float tail = 0.5f * density * scaled_erfc(size * 0.707106781f);
  return {x < 0.0f ? tail : 1.0f - tail, density};
}

void gelu_erf(const float* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * normal(x[i]).below;
}

void gelu_erf_backward(const float* x, const float* dy, float* dx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Normal at = normal(x[i]);
    dx[i] = dy[i] * (at.below + x[i] * 0.398942280f * at.density);
  }
}

// Comparisons in this form let NaN through.
void clamp(const float* x, float low, float high, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float above = x[i] < low ? low : x[i];
    y[i] = above > high ? high : above;
  }
}

void clamp_backward(const float* y, const float* dy, float low, float high, float* dx,
                    std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] <= low || y[i] >= high ? 0.0f : dy[i];
}

void swiglu(const float* gate, const float* up, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = gate[i] * sigmoid_fp32(gate[i]) * up[i];
}

void swiglu_backward(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                     std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gate[i];
    const Sigmoid s = sigmoid_pair(g);
    const float d = dy[i];
    dgate[i] = d * up[i] * (s.value + g * s.value * s.rest);
    dup[i] = d * g * s.value;
  }
}

constexpr int kDraws = 64;  // counters drawn at a time, four columns each

// Philox4x32-10 as in trireme/base/philox.h, written again because an inline function of another
// header must not be compiled here (kernels.h), and with the rounds outside so that the loop over
// counters becomes vector instructions. Counter i is (first + i, position, sample, layer).
void draw(const DropoutRow& row, std::uint32_t first, std::uint32_t (&words)[4][kDraws]) {
  std::uint32_t* __restrict c0 = words[0];
  std::uint32_t* __restrict c1 = words[1];
  std::uint32_t* __restrict c2 = words[2];
  std::uint32_t* __restrict c3 = words[3];
  for (int i = 0; i < kDraws; ++i) {
    c0[i] = first + static_cast<std::uint32_t>(i);
    c1[i] = row.position;
    c2[i] = row.sample;
    c3[i] = row.layer;
  }
  auto k0 = static_cast<std::uint32_t>(row.key);
  auto k1 = static_cast<std::uint32_t>(row.key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int i = 0; i < kDraws; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = static_cast<std::uint32_t>(p1);
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// philox_uniform(bits) > rate: kept, scaled.
TRIREME_INLINE float keep_factor(std::uint32_t bits, float rate, float kept) {
  const float uniform =
      (static_cast<float>(static_cast<std::int32_t>(bits >> 8)) + 1.0f) * 0x1p-24f;
  return uniform > rate ? kept : 0.0f;
}

void dropout(const DropoutRow& row, const float* x, float* y, std::int64_t n) {
  alignas(64) std::uint32_t words[4][kDraws];
  alignas(64) float factor[4 * kDraws];
  const float rate = row.rate;
  const float kept = 1.0f / (1.0f - rate);
  for (std::int64_t begin = 0; begin < n; begin += 4 * kDraws) {
    draw(row, static_cast<std::uint32_t>(begin / 4), words);
    for (int i = 0; i < kDraws; ++i) {
      factor[4 * i] = keep_factor(words[0][i], rate, kept);
      factor[4 * i + 1] = keep_factor(words[1][i], rate, kept);
      factor[4 * i + 2] = keep_factor(words[2][i], rate, kept);
      factor[4 * i + 3] = keep_factor(words[3][i], rate, kept);
    }
    const std::int64_t count = n - begin < 4 * kDraws ? n - begin : 4 * kDraws;
    // A dropped element is 0 even if it was not finite.
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      y[begin + i] = factor[i] == 0.0f ? 0.0f : x[begin + i] * factor[i];
    }
  }
}

void rotate(float* low, float* high, const float* cosine, const float* sine, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float a = low[i];
    const float b = high[i];
    low[i] = a * cosine[i] - b * sine[i];
    high[i] = b * cosine[i] + a * sine[i];
  }
}

void rotate_adjacent(float* x, const float* cosine, const float* sine, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cosine[i] - b * sine[i];
    x[2 * i + 1] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace

extern const ElementwiseKernels kElementwise = {from_bf16,
                                                to_bf16,
                                                from_fp16,
                                                to_fp16,
                                                split,
                                                join,
                                                add,
                                                scale,
                                                bend,
                                                gelu,
                                                gelu_backward,
                                                gelu_erf,
                                                gelu_erf_backward,
                                                clamp,
                                                clamp_backward,
                                                swiglu,
                                                swiglu_backward,
                                                geglu,
                                                geglu_backward,
                                                dropout,
                                                rotate,
                                                rotate_adjacent};

}  // namespace trireme::ops::cpu::TRIREME_ISA
