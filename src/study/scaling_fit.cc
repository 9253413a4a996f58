// The two laws of scaling, fitted to measured rates.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "trireme/study/scaling.h"

namespace trireme::scaling {
namespace {

constexpr std::size_t kTerms = 3;
using Row = std::array<double, kTerms>;

// With a = 1 / one_node, b = contention * a, c = coherency * a the law is linear:
// n / rate = a + b (n - 1) + c n (n - 1). Each equation is divided by its left side, so that the
// fit minimizes squared relative errors.
Row terms_of(const RateAt& at) {
  const double scale = at.rate / at.nodes;
  return {scale, scale * (at.nodes - 1), scale * at.nodes * (at.nodes - 1)};
}

// Solves the normal equations for the chosen terms; the others are 0. Returns nullopt if they are
// singular.
std::optional<Row> solve(std::span<const RateAt> measured, const std::vector<std::size_t>& chosen) {
  const std::size_t n = chosen.size();
  std::array<std::array<double, kTerms + 1>, kTerms> m{};
  for (const RateAt& at : measured) {
    const Row row = terms_of(at);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) m[i][j] += row[chosen[i]] * row[chosen[j]];
      m[i][n] += row[chosen[i]];
    }
  }
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i) {
      if (std::abs(m[i][k]) > std::abs(m[pivot][k])) pivot = i;
    }
    std::swap(m[k], m[pivot]);
    if (std::abs(m[k][k]) < 1e-12) return {};
    for (std::size_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double factor = m[i][k] / m[k][k];
      for (std::size_t j = k; j <= n; ++j) m[i][j] -= factor * m[k][j];
    }
  }
  Row solution{};
  for (std::size_t k = 0; k < n; ++k) solution[chosen[k]] = m[k][n] / m[k][k];
  return solution;
}

double squared_error(std::span<const RateAt> measured, const Row& solution) {
  double sum = 0.0;
  for (const RateAt& at : measured) {
    const Row row = terms_of(at);
    double value = -1.0;
    for (std::size_t i = 0; i < kTerms; ++i) value += row[i] * solution[i];
    sum += value * value;
  }
  return sum;
}

Law law_of(std::span<const RateAt> measured, const Row& solution) {
  Law law{.one_node = 1.0 / solution[0],
          .contention = solution[1] / solution[0],
          .coherency = solution[2] / solution[0]};
  double sum = 0.0;
  for (const RateAt& at : measured) {
    const double relative = law.rate(at.nodes) / at.rate - 1.0;
    sum += relative * relative;
  }
  law.error = std::sqrt(sum / static_cast<double>(measured.size()));
  return law;
}

// Returns the best solution without a negative term. The problem is convex and has at most three
// terms, so trying every set of non-zero terms finds it.
std::optional<Law> fit(std::span<const RateAt> measured, std::size_t terms) {
  std::set<double> counts;
  for (const RateAt& at : measured) {
    if (!(at.rate > 0.0) || !(at.nodes > 0.0)) return {};
    counts.insert(at.nodes);
  }
  if (counts.size() < terms) return {};
  std::optional<Row> best;
  double least = 0.0;
  for (unsigned set = 0; set < 1u << (terms - 1); ++set) {
    std::vector<std::size_t> chosen = {0};
    for (std::size_t i = 1; i < terms; ++i) {
      if ((set >> (i - 1) & 1u) != 0) chosen.push_back(i);
    }
    const std::optional<Row> solution = solve(measured, chosen);
    if (!solution || (*solution)[0] <= 0.0 || (*solution)[1] < 0.0 || (*solution)[2] < 0.0)
      continue;
    const double error = squared_error(measured, *solution);
    if (!best || error < least) {
      best = solution;
      least = error;
    }
  }
  return best ? std::optional(law_of(measured, *best)) : std::nullopt;
}

}  // namespace

double Law::rate(double nodes) const {
  return one_node * nodes / (1 + contention * (nodes - 1) + coherency * nodes * (nodes - 1));
}

// d rate / d n = 0 at 1 - contention = coherency * n^2.
std::optional<double> Law::peak() const {
  if (coherency <= 0.0) return {};
  return contention >= 1.0 ? 1.0 : std::max(1.0, std::sqrt((1.0 - contention) / coherency));
}

// Solves 1 + contention (n - 1) + coherency n (n - 1) = 2 for n.
std::optional<double> Law::half_efficiency() const {
  if (coherency > 0.0) {
    const double b = contention - coherency;
    return (-b + std::sqrt(b * b + 4 * coherency * (1 + contention))) / (2 * coherency);
  }
  if (contention > 0.0) return 1.0 + 1.0 / contention;
  return {};
}

std::optional<Law> fit_amdahl(std::span<const RateAt> measured) {
  return fit(measured, 2);
}
std::optional<Law> fit_universal(std::span<const RateAt> measured) {
  return fit(measured, 3);
}

}  // namespace trireme::scaling
