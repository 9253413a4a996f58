// Covers of a product of factors.
#pragma once

#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "support/whole_product.h"

namespace trireme::testing {

// The values of each factor, in the order of the factors.
using Combination = std::vector<int>;

// All combinations of factors that have values from 0 to below levels[i], but for impossible ones,
// in rising order.
inline std::vector<Combination> combinations(
    const std::vector<int>& levels, const std::function<bool(const Combination&)>& is_possible) {
  std::vector<Combination> all;
  Combination values(levels.size(), 0);
  for (;;) {
    if (is_possible(values)) all.push_back(values);
    std::size_t factor = levels.size();
    while (factor > 0 && ++values[factor - 1] == levels[factor - 1]) values[--factor] = 0;
    if (factor == 0) return all;
  }
}

// Few of them, in which each pair of values of two factors occurs that occurs in some: one after
// the other, the one with the most pairs that none before has. All under tests/run.sh --full.
inline std::vector<Combination> pairwise_cover(
    const std::vector<int>& levels, const std::function<bool(const Combination&)>& is_possible) {
  const std::vector<Combination> all = combinations(levels, is_possible);
  if (whole_product()) return all;
  using Pair = std::tuple<std::size_t, std::size_t, int, int>;  // factors, values
  const auto pairs_of = [](const Combination& values) {
    std::vector<Pair> pairs;
    for (std::size_t b = 1; b < values.size(); ++b) {
      for (std::size_t a = 0; a < b; ++a) pairs.emplace_back(a, b, values[a], values[b]);
    }
    return pairs;
  };
  std::set<Pair> seen;
  std::vector<Combination> cover;
  for (;;) {
    const Combination* best = nullptr;
    std::size_t most = 0;
    for (const Combination& values : all) {
      std::size_t fresh = 0;
      for (const Pair& pair : pairs_of(values)) fresh += seen.contains(pair) ? 0 : 1;
      if (fresh <= most) continue;
      most = fresh;
      best = &values;
    }
    if (best == nullptr) return cover;
    cover.push_back(*best);
    for (const Pair& pair : pairs_of(*best)) seen.insert(pair);
  }
}

}  // namespace trireme::testing
