// What ranks contribute in the tests of communicators, and what must come of it, computed on one
// rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::testing {

// Element i of what `rank` contributes: any rank can compute what all others hold.
template <class T>
T value_of(int rank, std::int64_t i) {
  const std::int64_t hash = (rank * 7919 + i * 104729) % 2003 - 1001;
  if constexpr (std::is_same_v<T, BFloat16>) return BFloat16(static_cast<float>(hash) / 7.0f);
  if constexpr (std::is_same_v<T, Half>) return Half(static_cast<float>(hash) / 7.0f);
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(hash) / T{7};
  if constexpr (std::is_same_v<T, std::uint8_t>) return static_cast<T>((hash + 1001) % 31);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(hash);
}

template <class T>
std::vector<T> values(int rank, std::int64_t count, std::int64_t first = 0) {
  std::vector<T> result(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    result[static_cast<std::size_t>(i)] = value_of<T>(rank, first + i);
  }
  return result;
}

// What the contract says: rank order, fp32 for bf16 and fp16, rounded once.
template <class T>
T reduced(int ranks, std::int64_t i, ReduceOp op) {
  using Accumulator = std::conditional_t<sizeof(T) == 2, float, T>;
  auto result = static_cast<Accumulator>(value_of<T>(0, i));
  for (int rank = 1; rank < ranks; ++rank) {
    const auto x = static_cast<Accumulator>(value_of<T>(rank, i));
    if (op == ReduceOp::kSum) result = static_cast<Accumulator>(result + x);
    if (op == ReduceOp::kMax) result = std::max(result, x);
    if (op == ReduceOp::kMin) result = std::min(result, x);
  }
  return static_cast<T>(result);
}

template <class T>
std::vector<T> all_reduced(int ranks, std::int64_t count, ReduceOp op, std::int64_t first = 0) {
  std::vector<T> result(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    result[static_cast<std::size_t>(i)] = reduced<T>(ranks, first + i, op);
  }
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
Tensor wrap(std::vector<T>& data) {
  return Tensor::wrap(std::span<T>(data));
}

}  // namespace trireme::testing
