#include "trireme/parallel/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Table over (stages left, first block): the least cost of blocks [first, n) on these stages.
class Table {
 public:
  Table(int stages, int blocks)
      : width_(blocks + 1),
        values_(static_cast<std::size_t>(stages + 1) * static_cast<std::size_t>(blocks + 1),
                kInfinity) {
    at(0, blocks) = 0;  // no blocks on no stages
  }
  double& at(int stages, int first) {
    return values_[static_cast<std::size_t>(stages) * static_cast<std::size_t>(width_) +
                   static_cast<std::size_t>(first)];
  }

 private:
  int width_;
  std::vector<double> values_;
};

void check_arguments(std::span<const double> costs, int stages) {
  TRIREME_CHECK(stages >= 1, fmt::format("blocks are split into {} stages", stages));
  if (static_cast<std::size_t>(stages) > costs.size()) {
    throw ConfigError(fmt::format(
        "more stages than blocks: grid.pipeline is {}, but the model has {} blocks; grid.pipeline "
        "can be 1 to {}",
        stages, costs.size(), costs.size()));
  }
  for (const double cost : costs) {
    TRIREME_CHECK(std::isfinite(cost) && cost >= 0, fmt::format("a block costs {}", cost));
  }
}

}  // namespace

std::vector<int> partition_blocks(std::span<const double> costs, int stages) {
  check_arguments(costs, stages);
  const int blocks = static_cast<int>(costs.size());
  std::vector<double> prefix(costs.size() + 1, 0.0);
  for (std::size_t i = 0; i < costs.size(); ++i) prefix[i + 1] = prefix[i] + costs[i];
  // One expression for all uses, so that the cost of a run has the same bits everywhere.
  const auto run = [&](int first, int end) {
    return prefix[static_cast<std::size_t>(end)] - prefix[static_cast<std::size_t>(first)];
  };

  Table dearest(stages, blocks), squares(stages, blocks);
  for (int s = 1; s <= stages; ++s) {
    for (int first = 0; first + s <= blocks; ++first) {
      for (int end = first + 1; end + s - 1 <= blocks; ++end) {
        if (run(first, end) >= dearest.at(s, first)) break;  // a longer run is no better
        const double cost = std::max(run(first, end), dearest.at(s - 1, end));
        dearest.at(s, first) = std::min(dearest.at(s, first), cost);
      }
    }
  }
  const double limit = dearest.at(stages, 0);
  const auto square_cost = [&](int s, int first, int end) {
    const double cost = run(first, end);
    return cost > limit ? kInfinity : cost * cost + squares.at(s - 1, end);
  };
  for (int s = 1; s <= stages; ++s) {
    for (int first = 0; first + s <= blocks; ++first) {
      for (int end = first + 1; end + s - 1 <= blocks; ++end) {
        if (run(first, end) > limit) break;
        squares.at(s, first) = std::min(squares.at(s, first), square_cost(s, first, end));
      }
    }
  }
  std::vector<int> bounds{0};
  for (int s = stages; s >= 1; --s) {
    int end = bounds.back() + 1;
    while (square_cost(s, bounds.back(), end) > squares.at(s, bounds.back())) ++end;
    bounds.push_back(end);
  }
  return bounds;
}

std::vector<StepCosts> costs_of_parts(std::span<const nn::BlockPlan> blocks,
                                      std::span<const int> bounds) {
  std::vector<StepCosts> parts;
  for (std::size_t part = 0; part + 1 < bounds.size(); ++part) {
    StepCosts costs{0, 0, 0};
    for (int i = bounds[part]; i < bounds[part + 1]; ++i) {
      const nn::BlockPlan& block = blocks[static_cast<std::size_t>(i)];
      costs.forward += block.loss ? 0 : block.cost;
      costs.backward_input += block.loss ? 3 * block.cost : block.cost;
      costs.backward_weight += block.loss ? 0 : block.cost;
    }
    parts.push_back(costs);
  }
  return parts;
}

}  // namespace trireme::parallel
