// The estimate of memory beside what a rank's allocator held at most in real steps, on every grid;
// and that of traffic beside what the ranks sent.
#include "trireme/train/memory_estimate.h"

#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/train/setup.h"
#include "trireme/train/step_traffic.h"

#include "support/batches.h"
#include "support/mpi_test.h"

namespace trireme::testing {
namespace {

struct Case {
  const char* name;
  GridShape grid;
  const char* preset = "gpt";
  bool bf16 = false, sequence_parallel = false;
  const char* schedule = "1f1b";
  double dropout = 0.0;
  int micro = 2;      // large: activations outweigh the rest
  int recompute = 0;  // recompute.every, with recompute.mode full
  bool selective = false;
};

Config config_of(const Case& c) {
  Config config;
  config.model.layers = 4;
  config.model.width = 64;
  config.model.heads = 4;
  config.model.context = 64;
  config.model.vocabulary = 300;
  config.model.dropout = c.dropout;
  if (std::string(c.preset) == "llama") {
    config.model.norm = "rms";
    config.model.activation = "swiglu";
    config.model.positions = "rotary";
    config.model.kv_heads = 2;
    config.model.tied = false;
    config.model.bias = false;
  }
  config.batch.global = 8 * c.micro;
  config.batch.micro = c.micro;
  config.run.precision = c.bf16 ? "bf16" : "fp32";
  config.grid.schedule = c.schedule;
  config.grid.sequence_parallel = c.sequence_parallel;
  if (c.recompute > 0) config.recompute = {"full", c.recompute};
  if (c.selective) config.recompute.mode = "selective";
  return config;
}

class Estimate : public ::testing::TestWithParam<Case> {};

TEST_P(Estimate, IsNearTheHighWaterMark) {
  const Case& c = GetParam();
  if (c.grid.ranks() != runtime().size()) GTEST_SKIP() << "another number of ranks";
  const Config config = config_of(c);
  const models::GptConfig model = resolve_model(config.model, std::nullopt);
  ops::Context ctx = ops::make_cpu_context(1);
  const ProcessGrid grid(runtime(), c.grid);
  parallel::TrainerStep step(ctx, grid, models::gpt_plan(model), step_options(config));
  const auto mine = parallel::share_of(config.batch.global / config.batch.micro,
                                       c.grid.extent(kDataAxes), grid.index(kDataAxes));
  const BatchShape shape{model.vocabulary, config.batch.micro, model.context};
  const auto batches = make_batches(ctx, shape, mine.first, mine.count, true);
  for (int i = 1; i <= 2; ++i) step.train(batches, i, 1e-3f, 1);

  const MemoryStats stats = ctx.allocator->stats();
  const auto most = [&](std::size_t bytes) {
    std::array<double, 1> value{static_cast<double>(bytes)};
    runtime().world().all_reduce_host(std::span<double>(value), ReduceOp::kMax);
    return value[0];
  };
  const auto held = [&](MemoryUse use) { return most(stats.live[static_cast<std::size_t>(use)]); };
  const double total = most(stats.total_peak);
  const MemoryEstimate estimate = estimate_memory(config, model, c.grid, 0);
  // The rank that needs most in all need not hold the most of each.
  EXPECT_LE(estimate.parameters, 1.02 * held(MemoryUse::kParameters));
  EXPECT_LE(estimate.gradients, 1.02 * held(MemoryUse::kGradients));
  EXPECT_LE(estimate.optimizer, 1.02 * held(MemoryUse::kOptimizer));
  if (c.grid[Axis::kPipeline] == 1) {
    EXPECT_GE(estimate.parameters, 0.98 * held(MemoryUse::kParameters));
    EXPECT_GE(estimate.gradients, 0.98 * held(MemoryUse::kGradients));
    EXPECT_GE(estimate.optimizer, 0.98 * held(MemoryUse::kOptimizer));
  }
  if (runtime().rank() == 0) {
    fmt::print("{}: estimate {:.0f} KiB, high-water mark {:.0f} KiB, ratio {:.2f}\n", c.name,
               estimate.total() / 1024, total / 1024, estimate.total() / total);
  }
  EXPECT_GT(estimate.total(), 0.85 * total);
  EXPECT_LT(estimate.total(), 1.25 * total);
}

TEST_P(Estimate, OfTrafficIsWhatAStepSends) {
  const Case& c = GetParam();
  if (c.grid.ranks() != runtime().size()) GTEST_SKIP() << "another number of ranks";
  const Config config = config_of(c);
  const models::GptConfig model = resolve_model(config.model, std::nullopt);
  ops::Context ctx = ops::make_cpu_context(1);
  const ProcessGrid grid(runtime(), c.grid);
  parallel::TrainerStep step(ctx, grid, models::gpt_plan(model), step_options(config));
  const auto mine = parallel::share_of(config.batch.global / config.batch.micro,
                                       c.grid.extent(kDataAxes), grid.index(kDataAxes));
  const auto batches = make_batches(ctx, {model.vocabulary, config.batch.micro, model.context},
                                    mine.first, mine.count, true);
  runtime().recorder().start_trace();
  step.train(batches, 1, 1e-3f, 1);
  const GridTraffic counted = traffic_of(runtime().recorder().take_trace());
  const GridTraffic estimate = estimate_traffic(config, model, c.grid);
  const auto compare = [&](const char* name, double estimated, double here) {
    const double most = runtime().world().all_reduce_host(here, ReduceOp::kMax);
    if (runtime().rank() == 0 && most + estimated > 0.0) {
      fmt::print("{}: {} estimate {:.0f} KiB, counted {:.0f} KiB\n", c.name, name, estimated / 1024,
                 most / 1024);
    }
    EXPECT_GE(estimated, 0.9 * most) << name;
    EXPECT_LE(estimated, 1.1 * most) << name;
  };
  compare("data", estimate.data, counted.data);
  compare("pipeline", estimate.pipeline, counted.pipeline);
  compare("tensor", estimate.tensor, counted.tensor);
  compare("ends", estimate.ends, counted.ends);
}

const Case kCases[] = {
    {"gpt", {1, 1, 1}},
    {"gpt_bf16", {1, 1, 1}, "gpt", true},
    {"gpt_dropout", {1, 1, 1}, "gpt", false, false, "1f1b", 0.1},
    {"llama", {1, 1, 1}, "llama"},
    {"llama_bf16", {1, 1, 1}, "llama", true},
    {"data", {4, 1, 1}},
    {"tensor", {1, 1, 4}},
    {"tensor_llama", {1, 1, 4}, "llama"},
    {"sequence_parallel", {1, 1, 4}, "gpt", false, true},
    {"pipeline", {1, 4, 1}},
    {"pipeline_gpipe", {1, 4, 1}, "llama", false, false, "gpipe"},
    {"mixed", {2, 2, 1}},
    {"mixed_tensor", {1, 2, 2}, "gpt", true, true},
    {"rows", {1, 1, 1}, "gpt", false, false, "1f1b", 0.0, 16},
    {"rows_bf16", {1, 1, 1}, "gpt", true, false, "1f1b", 0.0, 16},
    {"rows_llama", {1, 1, 1}, "llama", false, false, "1f1b", 0.0, 16},
    {"rows_tensor", {1, 1, 4}, "gpt", false, false, "1f1b", 0.0, 16},
    {"rows_sequence_parallel", {1, 1, 4}, "gpt", false, true, "1f1b", 0.0, 16},
    {"rows_pipeline", {1, 4, 1}, "gpt", false, false, "1f1b", 0.1, 16},
    {"recompute", {1, 1, 1}, "gpt", false, false, "1f1b", 0.1, 16, 1},
    {"recompute_llama", {1, 1, 1}, "llama", false, false, "1f1b", 0.0, 16, 2},
    {"recompute_pipeline", {1, 2, 2}, "llama", false, false, "gpipe", 0.0, 16, 1},
    {"recompute_sequence_parallel", {1, 1, 4}, "gpt", false, true, "1f1b", 0.0, 16, 2},
    {"selective", {1, 1, 1}, "gpt", false, false, "1f1b", 0.1, 16, 0, true},
    {"selective_llama", {1, 1, 1}, "llama", true, false, "1f1b", 0.0, 16, 0, true},
    {"selective_pipeline", {1, 2, 2}, "llama", false, false, "gpipe", 0.0, 16, 0, true},
    {"selective_sequence_parallel", {1, 1, 4}, "gpt", false, true, "1f1b", 0.0, 16, 0, true},
};
INSTANTIATE_TEST_SUITE_P(Grids, Estimate, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace trireme::testing
