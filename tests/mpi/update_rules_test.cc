// Update rules give the same bits on every layout: with the same gradients, each rank's weights
// are those of one rank that holds the whole model.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/philox.h"
#include "trireme/nn/declared.h"
#include "trireme/ops/context.h"
#include "trireme/optim/optimizer.h"
#include "trireme/parallel/stage.h"

#include "models/gpt/gpt.h"
#include "support/equality.h"
#include "support/mpi_test.h"
#include "support/small_convolutional.h"

namespace trireme::testing {
namespace {

constexpr int kSteps = 3;

// The gradient of an element: a draw by the parameter's name, the step and the global index.
void set_gradients(const parallel::Stage& stage, int step) {
  for (const nn::FlatGroup* group : stage.groups()) {
    const auto all = group->gradient_shard().span<float>();
    std::ranges::fill(all, 0.0f);
    for (const nn::FlatGroup::Part& part : group->parts()) {
      const nn::Placement& placement = part.parameter->placement();
      const std::uint64_t key = philox_key(step, part.parameter->name());
      for (const nn::Slab& slab : nn::slabs_of(placement, part.elements)) {
        for (std::int64_t i = 0; i < slab.extent.rows(); ++i) {
          const nn::SlabRow row = nn::row_of(placement, slab, i);
          const std::int64_t at = part.at + row.local - part.elements.begin;
          philox_normals(
              key, static_cast<std::uint64_t>(row.global),
              all.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(row.count)));
        }
      }
    }
  }
}

LocalParts update(ops::Context& ctx, const ProcessGrid& grid, const nn::ModelPlan& plan,
                  const optim::OptimizerConfig& config, DType compute, int steps = kSteps,
                  bool split_masters = false) {
  parallel::StageOptions options;
  options.compute = compute;
  options.split_masters = split_masters;
  options.whole_weights = grid.extent(Axis::kShard) % 2 == 1;
  options.whole_gradients = options.whole_weights;
  options.weights_apart = config.weights_apart();
  const parallel::Stage stage(ctx, grid, plan, options);
  optim::Optimizer optimizer(config, ctx, grid, stage.groups());
  optimizer.connect(ctx);
  for (int step = 1; step <= steps; ++step) {
    set_gradients(stage, step);
    ops::write_step_state(ctx, {.updates = step,
                                .learning_rate = 0.01f,
                                .finite = step != 2,
                                .rate_squares = 1e-4 * step,
                                .squares_exponent = 24});
    optimizer.step(ctx);
  }
  return weights_of(ctx, stage);
}

optim::OptimizerConfig in_bf16(optim::OptimizerConfig config) {
  config.rule.matrices = DType::kBF16;
  for (optim::RuleGroup& group : config.groups) {
    if (group.rule) group.rule->matrices = DType::kBF16;
  }
  return config;
}

// A parameter in double, and what the rules of whole parameters do with it.
struct Reference {
  std::vector<double> w, m, v, rows, columns;
  std::int64_t columns_count;  // of a matrix; 0: it is none
  bool decays;

  static double norm(const std::vector<double>& x) {
    double sum = 0.0;
    for (const double one : x) sum += one * one;
    return std::sqrt(sum);
  }

  // You et al. 2020, algorithm 2, with the corrections of Adam.
  void lamb(const std::vector<double>& g, double t, double rate) {
    const optim::RuleSettings usual = optim::rule_kind("lamb").defaults;
    std::vector<double> u(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      u[i] = m[i] / (1.0 - std::pow(0.9, t)) /
             (std::sqrt(v[i] / (1.0 - std::pow(0.999, t))) + double{usual.epsilon});
      if (decays) u[i] += double{usual.weight_decay} * w[i];
    }
    const double trust = decays && norm(w) > 0.0 && norm(u) > 0.0 ? norm(w) / norm(u) : 1.0;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * trust * u[i];
  }

  // You, Gitman and Ginsburg 2017, with the learning rate outside of the momentum.
  void lars(const std::vector<double>& g, double rate) {
    const double decay = decays ? double{optim::rule_kind("lars").defaults.weight_decay} : 0.0;
    const double both = norm(w) * norm(g);
    const double local = decays && both > 0.0 ? 0.001 * norm(w) / (norm(g) + decay * norm(w)) : 1.0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + local * (g[i] + decay * w[i]);
      w[i] -= rate * m[i];
    }
  }

  // torch.optim.Adafactor, of a matrix of the first dimension and the others together.
  void adafactor(const std::vector<double>& g, double t, double rate) {
    constexpr double kEpsilon = 1.1920929e-7;
    const double share = std::pow(t, -0.8), root = std::sqrt(static_cast<double>(w.size()));
    const double length = std::max(1e-3, norm(w) / root) * std::min(rate, 1.0 / std::sqrt(t));
    std::vector<double> u(w.size());
    const auto column = [&](std::size_t i) { return i % static_cast<std::size_t>(columns_count); };
    const auto row = [&](std::size_t i) { return i / static_cast<std::size_t>(columns_count); };
    if (columns_count > 0) {
      std::vector<double> r(rows.size()), c(columns.size());
      for (std::size_t i = 0; i < w.size(); ++i) {
        r[row(i)] += g[i] * g[i] / static_cast<double>(c.size());
        c[column(i)] += g[i] * g[i] / static_cast<double>(r.size());
      }
      for (std::size_t i = 0; i < r.size(); ++i) rows[i] += share * (r[i] - rows[i]);
      for (std::size_t i = 0; i < c.size(); ++i) columns[i] += share * (c[i] - columns[i]);
    }
    double mean = 0.0;
    for (const double one : rows) mean += one / static_cast<double>(rows.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      if (columns_count == 0) v[i] += share * (g[i] * g[i] - v[i]);
      const double variance =
          columns_count == 0 ? v[i] : rows[row(i)] * columns[column(i)] / std::max(mean, kEpsilon);
      u[i] = g[i] / std::sqrt(std::max(variance, kEpsilon * kEpsilon));
    }
    const double excess = std::max(1.0, norm(u) / root);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= length / excess * u[i];
  }
};

// All grids of the world's ranks.
std::vector<GridShape> grids() {
  std::vector<GridShape> all;
  const int ranks = runtime().size();
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    for (int stages = 1; stages * tensor <= ranks; ++stages) {
      for (int shards = 1; shards * stages * tensor <= ranks; ++shards) {
        GridShape grid(ranks / (stages * tensor * shards), stages, tensor);
        grid[Axis::kShard] = shards;
        if (grid.ranks() == ranks) all.push_back(grid);
      }
    }
  }
  return all;
}

class UpdateRules : public ::testing::TestWithParam<std::string> {
 protected:
  void check(const nn::ModelPlan& plan, const optim::OptimizerConfig& config, DType compute,
             const std::vector<GridShape>& shapes, bool split_masters = false) {
    ops::Context ctx = ops::make_cpu_context(1);
    const ProcessGrid alone(runtime(), {1, 1, 1}, {runtime().rank()});
    const LocalParts expected = update(ctx, alone, plan, config, compute);
    for (const GridShape& shape : shapes) {
      const ProcessGrid grid(runtime(), shape);
      const LocalParts updated = update(ctx, grid, plan, config, compute, kSteps, split_masters);
      for (const Deviation& one : compare(expected, updated, runtime().world())) {
        EXPECT_TRUE(one.covered) << shape.to_string() << ": " << one.name;
        EXPECT_EQ(one.absolute, 0.0) << shape.to_string() << ": " << one.name;
      }
    }
  }
};

TEST_P(UpdateRules, GiveTheSameBitsOnEveryGrid) {
  const optim::OptimizerConfig config = optimizer_of_rule(GetParam());
  for (const char* preset : {"test-gpt", "test-llama"}) {
    check(models::gpt_plan(models::gpt_preset(preset)), config, DType::kF32, grids());
  }
  check(models::gpt_plan(models::gpt_preset("test-llama")), in_bf16(config), DType::kBF16, grids());
}

// The bits of master values in fp32 on one rank: what steps read is exact, whatever lies where.
TEST_P(UpdateRules, GiveTheSameBitsWithSplitMasters) {
  const optim::OptimizerConfig config = in_bf16(optimizer_of_rule(GetParam()));
  if (!optim::rule_kind(config.rule.name).takes_split) return;
  check(models::gpt_plan(models::gpt_preset("test-llama")), config, DType::kBF16, grids(),
        /*split_masters=*/true);
}

// Convolutions are matrices, depthwise kernels are none.
TEST_P(UpdateRules, GiveTheSameBitsForPictures) {
  std::vector<GridShape> without_tensor;
  for (const GridShape& grid : grids()) {
    if (grid[Axis::kTensor] == 1) without_tensor.push_back(grid);
  }
  const nn::ModelPlan plan = models::mobilenet_v2_plan(small_mobilenet());
  check(plan, optimizer_of_rule(GetParam()), DType::kF32, without_tensor);
}

TEST(UpdateRulesOfWholeParameters, AreThoseOfTheFormulas) {
  ops::Context ctx = ops::make_cpu_context(1);
  const ProcessGrid alone(runtime(), {1, 1, 1}, {runtime().rank()});
  const nn::ModelPlan plan = models::gpt_plan(models::gpt_preset("test-llama"));
  std::map<std::string, bool> decays;
  for (const nn::ParameterSpec& parameter : nn::declared_parameters(plan)) {
    decays[parameter.name] = parameter.decay;
  }
  for (const std::string rule : {"lamb", "lars", "adafactor"}) {
    const optim::OptimizerConfig config = optimizer_of_rule(rule);
    const LocalParts initial = update(ctx, alone, plan, config, DType::kF32, 0);
    for (const auto& [name, part] : update(ctx, alone, plan, config, DType::kF32)) {
      const Shape& shape = part.placement.global;
      // Memory may hold rows of padding behind those of the parameter.
      const float* const values = initial.at(name).values.data();
      const std::vector<float> before(values, values + shape.elements());
      Reference reference{{before.begin(), before.end()}, {}, {}, {}, {}, 0, decays.at(name)};
      reference.m.resize(before.size());
      reference.v.resize(before.size());
      if (shape.rank() > 1) {
        reference.columns_count = shape.elements() / shape[0];
        reference.rows.resize(static_cast<std::size_t>(shape[0]));
        reference.columns.resize(static_cast<std::size_t>(reference.columns_count));
      }
      for (const int step : {1, 3}) {  // the second is skipped
        std::vector<float> drawn(before.size());
        philox_normals(philox_key(step, name), 0, std::span(drawn));
        const std::vector<double> gradient(drawn.begin(), drawn.end());
        if (rule == "lamb") reference.lamb(gradient, step, 0.01);
        if (rule == "lars") reference.lars(gradient, 0.01);
        if (rule == "adafactor") reference.adafactor(gradient, step, 0.01);
      }
      double largest = 0.0, error = 0.0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        largest = std::max(largest, std::abs(reference.w[i]));
        error = std::max(error, std::abs(reference.w[i] - double{part.values[i]}));
      }
      EXPECT_LT(error, 2e-6 * largest) << rule << ": " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdateRules,
                         ::testing::Values("adamw", "lion", "muon", "muon by heads", "sgd", "lamb",
                                           "lars", "adafactor", "schedule_free"));

}  // namespace
}  // namespace trireme::testing
