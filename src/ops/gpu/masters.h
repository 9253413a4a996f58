// How kernels of updates access master values and the weights that follow them.
#pragma once

#include "trireme/tensor/split_float.h"

#include "ops/gpu/view.h"

namespace trireme::ops::gpu {

// Fp32 values, and weights of type T that receive them rounded; these are undefined where they are
// the same memory.
template <class T>
struct Masters {
  float* values = nullptr;
  View<T> weights;

  Masters() = default;
  Masters(const Tensor& master, const Tensor& to)
      : values(device_data<float>(master)),
        weights(to.raw() == master.raw() ? View<T>() : View<T>(to)) {}

  __device__ void load(std::int64_t i, std::int64_t left, bool vector, float (&v)[kChunk]) const {
    load_chunk(values + i, left, vector, v);
  }
  __device__ void store(std::int64_t i, std::int64_t left, bool vector,
                        const float (&v)[kChunk]) const {
    store_chunk(values + i, left, vector, v);
    if (weights.defined()) weights.store(i, left, vector, v);
  }
};

// The weights in bf16 and 16 bits more, which are the values together (SplitFloat).
struct Split {};

__device__ inline void join_pair(unsigned high, unsigned low, float& first, float& second) {
  const auto upper = static_cast<std::uint16_t>(high >> 16);
  const auto rest = static_cast<std::uint16_t>(low >> 16);
  first = static_cast<float>(
      SplitFloat(static_cast<std::uint16_t>(high & 0xffffu), static_cast<std::uint16_t>(low)));
  second = static_cast<float>(SplitFloat(upper, rest));
}
__device__ inline void split_pair(float first, float second, unsigned& high, unsigned& low) {
  const SplitFloat one(first), other(second);
  high = one.high | static_cast<unsigned>(other.high) << 16;
  low = one.low | static_cast<unsigned>(other.low) << 16;
}

template <>
struct Masters<Split> {
  std::uint16_t* low = nullptr;
  BFloat16* high = nullptr;

  Masters() = default;
  Masters(const Tensor& master, const Tensor& weights)
      : low(device_data<std::uint16_t>(master)), high(device_data<BFloat16>(weights)) {}

  __device__ void load(std::int64_t i, std::int64_t left, bool vector, float (&v)[kChunk]) const {
    if (vector && left >= kChunk) {
      const uint4 h = *reinterpret_cast<const uint4*>(high + i);
      const uint4 l = *reinterpret_cast<const uint4*>(low + i);
      join_pair(h.x, l.x, v[0], v[1]);
      join_pair(h.y, l.y, v[2], v[3]);
      join_pair(h.z, l.z, v[4], v[5]);
      join_pair(h.w, l.w, v[6], v[7]);
      return;
    }
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      v[j] = j < left ? static_cast<float>(SplitFloat(high[i + j].bits, low[i + j])) : 0.0f;
    }
  }
  __device__ void store(std::int64_t i, std::int64_t left, bool vector,
                        const float (&v)[kChunk]) const {
    if (vector && left >= kChunk) {
      uint4 h, l;
      split_pair(v[0], v[1], h.x, l.x);
      split_pair(v[2], v[3], h.y, l.y);
      split_pair(v[4], v[5], h.z, l.z);
      split_pair(v[6], v[7], h.w, l.w);
      *reinterpret_cast<uint4*>(high + i) = h;
      *reinterpret_cast<uint4*>(low + i) = l;
      return;
    }
#pragma unroll
    for (int j = 0; j < kChunk; ++j) {
      if (j >= left) continue;
      const SplitFloat one(v[j]);
      high[i + j].bits = one.high;
      low[i + j] = one.low;
    }
  }
};

// Calls body(Masters<T>) with the master values of a step and its weights.
template <class Body>
void with_masters(const Tensor& master, const Tensor& weights, const Body& body) {
  if (master.dtype() == DType::kU16) return body(Masters<Split>(master, weights));
  with_type({&weights}, [&](auto type) { body(Masters<decltype(type)>(master, weights)); });
}

}  // namespace trireme::ops::gpu
