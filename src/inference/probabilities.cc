#include "trireme/inference/probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

void make_probabilities(std::span<float> row) {
  const float largest = *std::ranges::max_element(row);
  double sum = 0.0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit - largest));
  for (float& value : row) {
    value = static_cast<float>(std::exp(static_cast<double>(value - largest)) / sum);
  }
}

void refuse_probabilities() {
  throw CheckpointError(
      "the model's probabilities are not finite: its weights are not, or --precision is too narrow "
      "for it");
}

void check_probabilities(std::span<const float> all) {
  if (std::ranges::all_of(all, [](float value) { return std::isfinite(value); })) return;
  refuse_probabilities();
}

std::vector<std::size_t> likeliest(std::span<const float> probabilities, std::size_t count) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  count = std::min(count, order.size());
  std::ranges::partial_sort(
      order, order.begin() + static_cast<std::ptrdiff_t>(count), [&](std::size_t a, std::size_t b) {
        return std::pair(-probabilities[a], a) < std::pair(-probabilities[b], b);
      });
  order.resize(count);
  return order;
}

}  // namespace trireme
