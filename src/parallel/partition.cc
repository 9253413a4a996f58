#include "trireme/parallel/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::parallel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Table over (parts left, first block): the least cost of blocks [first, n) in these parts.
class Table {
 public:
  Table(int parts, int blocks)
      : width_(blocks + 1),
        values_(static_cast<std::size_t>(parts + 1) * static_cast<std::size_t>(blocks + 1),
                kInfinity) {
    at(0, blocks) = 0;  // no blocks in no parts
  }
  double& at(int parts, int first) {
    return values_[static_cast<std::size_t>(parts) * static_cast<std::size_t>(width_) +
                   static_cast<std::size_t>(first)];
  }

 private:
  int width_;
  std::vector<double> values_;
};

void check_arguments(std::span<const double> costs, int stages, int chunks) {
  TRIREME_CHECK(stages >= 1 && chunks >= 1,
                fmt::format("blocks are split into {} stages of {} chunks", stages, chunks));
  const std::size_t blocks = costs.size(), most = blocks / static_cast<std::size_t>(chunks);
  if (static_cast<std::size_t>(stages) > most) {
    const std::string fits =
        most == 0     ? fmt::format("grid.chunks can be 1 to {}", blocks)
        : chunks == 1 ? fmt::format("grid.pipeline can be 1 to {}", most)
                      : fmt::format("with {} chunks grid.pipeline can be 1 to {}", chunks, most);
    throw ConfigError(chunks == 1 ? fmt::format("more stages than blocks: grid.pipeline is {}, but "
                                                "the model has {} blocks; {}",
                                                stages, blocks, fits)
                                  : fmt::format("more parts than blocks: grid.pipeline is {} and "
                                                "each stage has {} chunks (grid.chunks), but the "
                                                "model has {} blocks; {}",
                                                stages, chunks, blocks, fits));
  }
  for (const double cost : costs) {
    TRIREME_CHECK(std::isfinite(cost) && cost >= 0, fmt::format("a block costs {}", cost));
  }
}

// Which gradients are computed in a block.
class Gradients {
 public:
  explicit Gradients(const nn::TrainedParameters& trained)
      : trained_(trained), first_(trained.first_block()) {}

  bool of_input(int block) const { return block >= first_; }
  bool of_weights(int block) const {
    return trained_.all() || trained_.elements[static_cast<std::size_t>(block)] > 0;
  }
  // Computations of a micro-batch, the forward among them.
  int computations(int block) const {
    return 1 + (of_input(block) ? 1 : 0) + (of_weights(block) ? 1 : 0);
  }

 private:
  const nn::TrainedParameters& trained_;
  int first_;
};

// What block number `i` costs in training.
StepCosts costs_of(const nn::BlockPlan& block, const Gradients& gradients, int i) {
  const double cost = cost_of(block);
  if (block.loss) return {0, gradients.computations(i) * cost, 0};
  return {cost, gradients.of_input(i) ? cost : 0, gradients.of_weights(i) ? cost : 0};
}

struct CostOfStages {
  double bottleneck = 0.0, squares = 0.0;  // the most expensive stage; the sum of all squared
  std::vector<double> beside;              // by part: the other parts of its stage
};

// `slowness`: of each part; empty: 1.
CostOfStages cost_of_stages(std::span<const double> costs, std::span<const double> handed_on,
                            std::span<const int> bounds, const PipelineLayout& layout,
                            std::span<const double> slowness) {
  std::vector<double> parts, stages(static_cast<std::size_t>(layout.stages), 0.0);
  for (int part = 0; part < layout.parts(); ++part) {
    const auto p = static_cast<std::size_t>(part);
    const auto first = static_cast<std::size_t>(bounds[p]),
               end = static_cast<std::size_t>(bounds[p + 1]);
    double cost = end < costs.size() ? handed_on[end - 1] : 0.0;
    for (std::size_t i = first; i < end; ++i) {
      cost += slowness.empty() ? costs[i] : costs[i] * slowness[p];
    }
    parts.push_back(cost);
    stages[static_cast<std::size_t>(layout.stage_of(part))] += cost;
  }
  CostOfStages result;
  for (const double stage : stages) {
    result.bottleneck = std::max(result.bottleneck, stage);
    result.squares += stage * stage;
  }
  for (int part = 0; part < layout.parts(); ++part) {
    result.beside.push_back(stages[static_cast<std::size_t>(layout.stage_of(part))] -
                            parts[static_cast<std::size_t>(part)]);
  }
  return result;
}

}  // namespace

std::vector<int> partition_blocks(std::span<const double> costs, int stages, int chunks,
                                  std::span<const double> handed_on, std::span<const double> beside,
                                  std::span<const double> slowness) {
  check_arguments(costs, stages, chunks);
  TRIREME_CHECK(handed_on.empty() || handed_on.size() == costs.size(),
                "what each block hands on, or nothing");
  const int parts = stages * chunks;
  TRIREME_CHECK(beside.empty() || beside.size() == static_cast<std::size_t>(parts),
                "what is beside each part, or nothing");
  TRIREME_CHECK(slowness.empty() || slowness.size() == static_cast<std::size_t>(parts),
                "how slow each part is, or nothing");
  const int blocks = static_cast<int>(costs.size());
  std::vector<double> prefix(costs.size() + 1, 0.0);
  for (std::size_t i = 0; i < costs.size(); ++i) prefix[i + 1] = prefix[i] + costs[i];
  const auto part_of = [&](int left) { return static_cast<std::size_t>(parts - left); };
  // One expression for all uses, so that the cost of a run has the same bits everywhere. A run is
  // the part that `left` parts begin with.
  const auto computed = [&](int left, int first, int end) {
    const double cost =
        prefix[static_cast<std::size_t>(end)] - prefix[static_cast<std::size_t>(first)];
    return slowness.empty() ? cost : cost * slowness[part_of(left)];
  };
  const auto run = [&](int left, int first, int end) {
    const double sent =
        end < blocks && !handed_on.empty() ? handed_on[static_cast<std::size_t>(end - 1)] : 0.0;
    const double others = beside.empty() ? 0.0 : beside[part_of(left)];
    return computed(left, first, end) + sent + others;
  };

  Table bottleneck(parts, blocks), squares(parts, blocks);
  for (int s = 1; s <= parts; ++s) {
    for (int first = 0; first + s <= blocks; ++first) {
      for (int end = first + 1; end + s - 1 <= blocks; ++end) {
        if (computed(s, first, end) >= bottleneck.at(s, first)) break;  // a longer run is no better
        const double cost = std::max(run(s, first, end), bottleneck.at(s - 1, end));
        bottleneck.at(s, first) = std::min(bottleneck.at(s, first), cost);
      }
    }
  }
  const double limit = bottleneck.at(parts, 0);
  const auto square_cost = [&](int s, int first, int end) {
    const double cost = run(s, first, end);
    return cost > limit ? kInfinity : cost * cost + squares.at(s - 1, end);
  };
  for (int s = 1; s <= parts; ++s) {
    for (int first = 0; first + s <= blocks; ++first) {
      for (int end = first + 1; end + s - 1 <= blocks; ++end) {
        if (computed(s, first, end) > limit) break;
        squares.at(s, first) = std::min(squares.at(s, first), square_cost(s, first, end));
      }
    }
  }
  std::vector<int> bounds{0};
  for (int s = parts; s >= 1; --s) {
    int end = bounds.back() + 1;
    while (square_cost(s, bounds.back(), end) > squares.at(s, bounds.back())) ++end;
    bounds.push_back(end);
  }
  return bounds;
}

double cost_of(const nn::BlockPlan& block) {
  return std::max(block.flops, kFlopsPerByte * block.bytes);
}

std::vector<int> cut_model(const nn::ModelPlan& plan, const PipelineLayout& layout,
                           const nn::TrainedParameters& trained, std::span<const double> speeds) {
  const Gradients gradients(trained);
  std::vector<double> costs, handed_on, slowness;
  for (int part = 0; part < layout.parts() && !speeds.empty(); ++part) {
    slowness.push_back(std::ranges::max(speeds) /
                       speeds[static_cast<std::size_t>(layout.stage_of(part))]);
  }
  for (const nn::BlockPlan& block : plan.blocks) {
    const auto i = static_cast<int>(costs.size());
    // The block's share of three computations, and of two messages, in sixths; 1 where all train.
    const int made = trained.all() ? 1 : 2 * gradients.computations(i);
    const int sent = trained.all() ? 1 : gradients.of_input(i) ? 6 : 3;
    costs.push_back(made * cost_of(block));
    double bytes = 0.0;
    if (block.boundary) {
      for (const nn::BoundaryTensor& tensor : block.boundary(1, plan.length, {})) {
        const std::size_t each = size_of(tensor.dtype.value_or(DType::kF32));
        bytes += static_cast<double>(tensor.shape.elements()) * static_cast<double>(each);
      }
    }
    handed_on.push_back(sent * kFlopsPerSentByte * bytes);
  }
  const auto cut = [&](std::span<const double> beside) {
    return partition_blocks(costs, layout.stages, layout.chunks, handed_on, beside, slowness);
  };
  std::vector<int> best = cut({});
  // A V's order of computations is made for parts that take equally long.
  const bool loops = layout.order == PipelineLayout::Order::kLoop;
  if (layout.chunks == 1 || layout.stages == 1 || !loops) return best;
  CostOfStages least = cost_of_stages(costs, handed_on, best, layout, slowness);
  for (;;) {
    const std::vector<int> next = cut(least.beside);
    CostOfStages found = cost_of_stages(costs, handed_on, next, layout, slowness);
    if (std::pair(found.bottleneck, found.squares) >= std::pair(least.bottleneck, least.squares)) {
      return best;
    }
    best = next;
    least = std::move(found);
  }
}

std::vector<int> parts_of_model(const nn::ModelPlan& plan, const PipelineLayout& layout,
                                std::span<const int> cut, const nn::TrainedParameters& trained) {
  if (cut.empty()) return cut_model(plan, layout, trained);
  const auto given = static_cast<int>(cut.size());
  if (given != layout.parts()) {
    const std::string stages = counted(layout.stages, "stage");
    throw ConfigError(fmt::format(
        "grid.cut lists {}, but there are {}: give the blocks of each", counted(given, "number"),
        layout.chunks == 1
            ? stages
            : fmt::format("{} of {} parts each (grid.chunks)", stages, layout.chunks)));
  }
  std::vector<int> bounds{0};
  std::int64_t blocks = 0;
  for (const int part : cut) {
    blocks += part;
    bounds.push_back(static_cast<int>(std::min<std::int64_t>(blocks, std::ssize(plan.blocks))));
  }
  if (blocks != std::ssize(plan.blocks)) {
    throw ConfigError(
        fmt::format("grid.cut lists {} blocks in all, but the model has {}, of which the first and "
                    "the last are the embedding and the head",
                    blocks, plan.blocks.size()));
  }
  return bounds;
}

int part_with(std::span<const int> bounds, int block) {
  return static_cast<int>(std::ranges::upper_bound(bounds, block) - bounds.begin()) - 1;
}

std::vector<int> ends_of_recomputed(std::span<const int> bounds, const PipelineLayout& layout,
                                    std::optional<int> count, int first_trained) {
  std::vector<int> ends;
  std::vector<int> left(static_cast<std::size_t>(layout.stages),
                        count.value_or(std::numeric_limits<int>::max()));
  for (int part = 0; part < layout.parts(); ++part) {
    const int end = bounds[static_cast<std::size_t>(part) + 1];
    const int first = std::clamp(first_trained, bounds[static_cast<std::size_t>(part)], end);
    int& of_stage = left[static_cast<std::size_t>(layout.stage_of(part))];
    const int taken = std::min(of_stage, end - first);
    of_stage -= taken;
    ends.push_back(first + taken);
  }
  return ends;
}

std::vector<StepCosts> costs_of_parts(std::span<const nn::BlockPlan> blocks,
                                      std::span<const int> bounds, int recomputed,
                                      const nn::TrainedParameters& trained,
                                      std::span<const int> ends) {
  const Gradients gradients(trained);
  std::vector<StepCosts> parts;
  for (std::size_t part = 0; part + 1 < bounds.size(); ++part) {
    StepCosts sum{0, 0, 0};
    const int end = bounds[part + 1], recomputed_end = ends.empty() ? end : ends[part];
    for (int i = bounds[part]; i < end; ++i) {
      const StepCosts costs = costs_of(blocks[static_cast<std::size_t>(i)], gradients, i);
      sum.forward += costs.forward;
      sum.backward_input += costs.backward_input;
      sum.backward_weight += costs.backward_weight;
      if (recomputed == 0 || i >= recomputed_end || !gradients.of_input(i)) continue;
      const int run_ends = std::min(
          recomputed_end, bounds[part] + ((i - bounds[part]) / recomputed + 1) * recomputed);
      sum.backward_input += costs.forward;
      if (blocks[static_cast<std::size_t>(run_ends - 1)].loss) sum.forward -= costs.forward;
    }
    parts.push_back(sum);
  }
  return parts;
}

}  // namespace trireme::parallel
