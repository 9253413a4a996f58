// Update rules give the same bits on every layout: with the same gradients, each rank's weights
// are those of one rank that holds the whole model.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/philox.h"
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
                  const optim::OptimizerConfig& config, DType compute) {
  parallel::StageOptions options;
  options.compute = compute;
  options.whole_weights = grid.extent(Axis::kShard) % 2 == 1;
  options.whole_gradients = options.whole_weights;
  const parallel::Stage stage(ctx, grid, plan, options);
  optim::Optimizer optimizer(config, ctx, grid, stage.groups());
  optimizer.connect(ctx);
  for (int step = 1; step <= kSteps; ++step) {
    set_gradients(stage, step);
    ops::write_step_state(ctx, {.updates = step, .learning_rate = 0.01f, .finite = step != 2});
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
             const std::vector<GridShape>& shapes) {
    ops::Context ctx = ops::make_cpu_context(1);
    const ProcessGrid alone(runtime(), {1, 1, 1}, {runtime().rank()});
    const LocalParts expected = update(ctx, alone, plan, config, compute);
    for (const GridShape& shape : shapes) {
      const ProcessGrid grid(runtime(), shape);
      const LocalParts updated = update(ctx, grid, plan, config, compute);
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

// Convolutions are matrices, depthwise kernels are none.
TEST_P(UpdateRules, GiveTheSameBitsForPictures) {
  std::vector<GridShape> without_tensor;
  for (const GridShape& grid : grids()) {
    if (grid[Axis::kTensor] == 1) without_tensor.push_back(grid);
  }
  const nn::ModelPlan plan = models::mobilenet_v2_plan(small_mobilenet());
  check(plan, optimizer_of_rule(GetParam()), DType::kF32, without_tensor);
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdateRules,
                         ::testing::Values("adamw", "lion", "muon", "muon by heads", "sgd"));

}  // namespace
}  // namespace trireme::testing
