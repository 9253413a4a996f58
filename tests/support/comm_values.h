// What ranks contribute in the tests of communicators, and the expected results, computed on one
// rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/rank_blocks.h"

namespace trireme::testing {

// Returns element i of the contribution of `rank`, so any rank can compute what all others hold.
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

// One reduction, in the type of partial results. The arguments are never NaN.
template <class A>
A combined(A left, A right, ReduceOp op) {
  if (op == ReduceOp::kSum || op == ReduceOp::kRoundedSum) return static_cast<A>(left + right);
  return op == ReduceOp::kMax ? std::max(left, right) : std::min(left, right);
}

// Returns the result that the contract prescribes: reduced along T(p), in fp32 for bf16 and fp16,
// and rounded once. Unlike comm, which counts bits, it recurses over vectors.
template <class T>
T reduced_along_tree(const std::vector<T>& contributions, ReduceOp op) {
  using Accumulator = std::conditional_t<sizeof(T) == 2, float, T>;
  std::vector<Accumulator> terms;
  for (const T& one : contributions) terms.push_back(static_cast<Accumulator>(one));
  const auto pair_up = [&](std::size_t pairs) {
    std::vector<Accumulator> next;
    for (std::size_t k = 0; k < pairs; ++k) {
      next.push_back(combined(terms[2 * k], terms[2 * k + 1], op));
    }
    next.insert(next.end(), terms.begin() + static_cast<std::ptrdiff_t>(2 * pairs), terms.end());
    terms = std::move(next);
  };
  std::size_t power = 1;
  while (2 * power <= terms.size()) power *= 2;
  pair_up(terms.size() - power);
  while (terms.size() > 1) pair_up(terms.size() / 2);
  return static_cast<T>(terms[0]);
}

template <class T>
T reduced(int ranks, std::int64_t i, ReduceOp op) {
  std::vector<T> contributions;
  for (int rank = 0; rank < ranks; ++rank) contributions.push_back(value_of<T>(rank, i));
  return reduced_along_tree(contributions, op);
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

// Whether a reduction in any order may give `a` where one along the tree gives `b`.
template <class T>
bool nearly_same(const std::vector<T>& a, const std::vector<T>& b) {
  if constexpr (std::is_integral_v<T>) return a == b;
  const auto close = [](T x, T y) {
    const auto left = static_cast<double>(static_cast<float>(x));
    const auto right = static_cast<double>(static_cast<float>(y));
    return std::abs(left - right) <= 1e-2 * std::max(1.0, std::abs(right));
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), close);
}

// Ranks in nodes, leaves and so on: `tiers` tiers, drawn from the seed.
inline std::shared_ptr<const RankBlocks> drawn_blocks(int ranks, int tiers, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<int>> result;
  int below = ranks;
  for (int tier = 0; tier < tiers; ++tier) {
    const int count = 1 + static_cast<int>(random() % static_cast<unsigned>(below));
    std::vector<int> block_of(static_cast<std::size_t>(below));
    for (int& block : block_of) block = static_cast<int>(random() % static_cast<unsigned>(count));
    std::vector<int> of_rank;
    for (int rank = 0; rank < ranks; ++rank) {
      const int lower = tier == 0 ? rank : result.back()[static_cast<std::size_t>(rank)];
      of_rank.push_back(block_of[static_cast<std::size_t>(lower)]);
    }
    result.push_back(std::move(of_rank));
    below = count;
  }
  return std::make_shared<const RankBlocks>(ranks, std::move(result));
}

template <class T>
Tensor wrap(std::vector<T>& data) {
  return Tensor::wrap(std::span<T>(data));
}

}  // namespace trireme::testing
