#include "ops/cpu/isa/tables.h"
#include "ops/cpu/isa/vector.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

// Sums of `vectors` vectors of channels of one pixel stay in registers over all taps.
template <int vectors>
TRIREME_INLINE void pixel(const DepthwiseRow& from, std::int64_t j, std::int64_t channel,
                          float* y) {
  Vector sum[vectors] = {};
  for (std::int64_t r = 0; r < from.rows; ++r) {
    for (std::int32_t t = from.first[j]; t < from.first[j + 1]; ++t) {
      const float* x = from.row[r] + from.column[t].at * from.channels + channel;
      const float* weight = from.weight[r] + from.column[t].tap * from.channels + channel;
      for (int v = 0; v < vectors; ++v) sum[v] += load(x + v * kWidth) * load(weight + v * kWidth);
    }
  }
  for (int v = 0; v < vectors; ++v) store(y + j * from.channels + channel + v * kWidth, sum[v]);
}

TRIREME_INLINE void pixel_channel(const DepthwiseRow& from, std::int64_t j, std::int64_t channel,
                                  float* y) {
  float sum = 0.0f;
  for (std::int64_t r = 0; r < from.rows; ++r) {
    for (std::int32_t t = from.first[j]; t < from.first[j + 1]; ++t) {
      sum += from.row[r][from.column[t].at * from.channels + channel] *
             from.weight[r][from.column[t].tap * from.channels + channel];
    }
  }
  y[j * from.channels + channel] = sum;
}

void depthwise(const DepthwiseRow& from, float* y) {
  constexpr int kMost = 4;
  for (std::int64_t j = 0; j < from.pixels; ++j) {
    std::int64_t channel = 0;
    for (; channel + kMost * kWidth <= from.channels; channel += kMost * kWidth) {
      pixel<kMost>(from, j, channel, y);
    }
    for (; channel + kWidth <= from.channels; channel += kWidth) pixel<1>(from, j, channel, y);
    for (; channel < from.channels; ++channel) pixel_channel(from, j, channel, y);
  }
}

template <int vectors>
TRIREME_INLINE void products(const float* a, std::int64_t a_step, const float* b,
                             std::int64_t b_step, std::int64_t pixels, float* sums) {
  Vector sum[vectors] = {};
  for (std::int64_t i = 0; i < pixels; ++i) {
    for (int v = 0; v < vectors; ++v) {
      sum[v] += load(a + i * a_step + v * kWidth) * load(b + i * b_step + v * kWidth);
    }
  }
  for (int v = 0; v < vectors; ++v) store(sums + v * kWidth, load(sums + v * kWidth) + sum[v]);
}

void add_products(const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
                  std::int64_t pixels, std::int64_t channels, float* sums) {
  constexpr int kMost = 4;
  std::int64_t channel = 0;
  for (; channel + kMost * kWidth <= channels; channel += kMost * kWidth) {
    products<kMost>(a + channel, a_step, b + channel, b_step, pixels, sums + channel);
  }
  for (; channel + kWidth <= channels; channel += kWidth) {
    products<1>(a + channel, a_step, b + channel, b_step, pixels, sums + channel);
  }
  for (; channel < channels; ++channel) {
    float sum = 0.0f;
    for (std::int64_t i = 0; i < pixels; ++i) {
      sum += a[i * a_step + channel] * b[i * b_step + channel];
    }
    sums[channel] += sum;
  }
}

void take_larger(const float* x, std::int32_t tap, float* best, std::int32_t* which,
                 std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const bool first_nan = x[i] != x[i] && best[i] == best[i];
    const bool takes = x[i] > best[i] || first_nan || which[i] < 0;
    which[i] = takes ? tap : which[i];
    best[i] = takes ? x[i] : best[i];
  }
}

void add_where(const float* x, const std::int32_t* which, std::int32_t tap, float* sum,
               std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) sum[i] += which[i] == tap ? x[i] : 0.0f;
}

}  // namespace

extern const PictureKernels kPictures = {depthwise, add_products, take_larger, add_where};

}  // namespace trireme::ops::cpu::TRIREME_ISA
