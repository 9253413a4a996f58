// What a dry run counts and keeps of each layer, with and without recomputation.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/parallel/schedule.h"
#include "trireme/plan/dry_run.h"
#include "trireme/plan/local_pass.h"

#include "support/dry_run_testing.h"

namespace trireme::testing {
namespace {

using models::GptConfig;
using plan::DryRunInput;
using plan::DryRunResult;

double matmul_flops(const std::vector<DryRunResult>& results) {
  double sum = 0.0;
  for (const DryRunResult& result : results) {
    sum += result.ranks * result.operations.by_operation().at("matmul").flops;
  }
  return sum;
}

// Forward, and in the backward one product for the input and one for the weight.
TEST(DryRunAll, CountsTheFlopsOfTheModelOnEveryGrid) {
  const GptConfig model = small_llama();
  constexpr double kTokens = 8 * 2 * 64;
  constexpr double kVocabulary = 320;  // in memory, whole or in two
  const double hidden = static_cast<double>(model.hidden);
  const double layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * hidden;
  const double expected = 3 * 2 * kTokens * (4 * layer + kVocabulary * 64);
  for (const GridShape& grid : {GridShape{1, 1, 1}, GridShape{2, 1, 1}, GridShape{1, 4, 1},
                                GridShape{2, 2, 1}, GridShape{3, 2, 1}}) {
    const auto results = plan::dry_run_all(input_of(model, grid, DType::kF32));
    EXPECT_EQ(ranks_of(results), grid.ranks());
    EXPECT_EQ(matmul_flops(results), expected) << grid.to_string();
  }
}

// On a GPU the backward of the norm behind attention makes the gradient of its output's bias. Where
// weight gradients wait, a pass of its own does.
TEST(DryRunAll, ABiasBeforeANormTakesNoPassOfItsOwn) {
  const auto passes = [](const char* schedule, std::int64_t layers) {
    GptConfig model = small_gpt();
    model.layers = layers;
    DryRunInput input = input_of(model, {1, 2, 1}, DType::kBF16);
    input.device.gpu_memory = std::int64_t{80} << 30;
    input.step.schedule = schedule;
    std::int64_t calls = 0;
    for (const DryRunResult& result : plan::dry_run_all(input)) {
      calls += result.operations.by_operation().at("add_column_sums").calls;
    }
    return calls / input.step.work.micro_batches();
  };
  EXPECT_EQ(passes("1f1b", 6) - passes("1f1b", 4), 2 * 3);  // behind queries, up and down
  EXPECT_GT(passes("zb-h1", 6) - passes("zb-h1", 4), 2 * 3);
}

// One product more for each layer, none for the logits, and memory for the layers' inputs alone.
TEST(DryRunAll, RecomputesTheLayersAndNotTheLogits) {
  const GptConfig model = small_llama();
  constexpr double kTokens = 8 * 2 * 64;
  constexpr double kVocabulary = 320;
  const double hidden = static_cast<double>(model.hidden);
  const double layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * hidden;
  for (const GridShape& grid : {GridShape{1, 1, 1}, GridShape{1, 2, 1}}) {
    plan::DryRunInput input = input_of(model, grid, DType::kF32);
    const auto kept = plan::dry_run_all(input);
    input.step.runs.recompute = parallel::Recompute::kFull;
    const auto recomputed = plan::dry_run_all(input);
    EXPECT_EQ(matmul_flops(recomputed), 2 * kTokens * (4 * 4 * layer + 3 * kVocabulary * 64));
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_LT(recomputed[i].memory.total_peak, kept[i].memory.total_peak);
    }
  }
}

// A forward is a third of a layer's work, or less: attention's backward is two and a half times its
// forward. The run that ends in the loss is not computed again, nor is anything else.
TEST(DryRunAll, RecomputesAtMostAThirdMore) {
  struct Work {
    double flops = 0.0, attention = 0.0;
  };
  const auto work = [](const DryRunInput& input) {
    Work sum;
    for (const DryRunResult& result : plan::dry_run_all(input)) {
      sum.flops += result.ranks * result.operations.total().flops;
      sum.attention += result.ranks * result.operations.by_operation().at("attention").flops;
    }
    return sum;
  };
  for (const char* preset : {"gpt2-124m", "llama3-8b"}) {
    for (const GridShape& grid : {GridShape{1, 1, 1}, GridShape{1, 2, 1}, GridShape{2, 2, 2}}) {
      const GptConfig model = models::gpt_preset(preset);
      DryRunInput input = input_of(model, grid, DType::kBF16);
      input.step.stage.sequence_parallel = true;
      const Work kept = work(input);
      const auto layers = static_cast<double>(model.layers);
      for (const int every : {1, 3}) {
        input.step.runs = {every, parallel::Recompute::kFull};
        const Work again = work(input);
        EXPECT_LE(again.flops, kept.flops * 4 / 3) << preset << " " << grid.to_string();
        EXPECT_GT(again.flops, kept.flops * 1.15) << preset << " " << grid.to_string();
        // The model's last run has the head, and layers if it is not a run of its own.
        if (grid[Axis::kPipeline] > 1) continue;
        const auto beside_head = static_cast<double>((model.layers + 1) % every);
        EXPECT_DOUBLE_EQ(again.attention / kept.attention, (2 * layers - beside_head) / layers);
      }
    }
  }
}

// The most that activations take at any point. Where all memory is at its peak depends on the
// workspace of products.
std::size_t kept_activations(const DryRunResult& result) {
  return result.memory.peak[static_cast<std::size_t>(MemoryUse::kActivations)];
}

// What one more layer keeps more for each micro-batch, in bytes per position.
double kept_by_a_layer(DryRunInput input, GptConfig model, parallel::Recompute recompute) {
  input.step.schedule = "gpipe";
  input.step.runs.recompute = recompute;
  const auto with_layers = [&](std::int64_t layers) {
    model.layers = layers;
    input.model = models::gpt_plan(model);
    return static_cast<double>(kept_activations(plan::dry_run(input, 0)));
  };
  return (with_layers(4) - with_layers(3)) /
         static_cast<double>(input.step.work.micro_batches() * input.micro * input.model.length);
}

// The table of src/cli/TRAINING.md. Sizes are powers of two, so that no size class rounds them up.
TEST(DryRunAll, ALayerKeepsWhatTheTableSays) {
  GptConfig llama = small_llama();
  llama.hidden = 256;
  GptConfig one_key_head = llama;
  one_key_head.kv_heads = 1;
  GptConfig unbiased = small_gpt();
  unbiased.biases = nn::Biases::all(false);
  for (const GptConfig& model : {with_dropout(small_gpt()), unbiased, llama, one_key_head}) {
    for (const int ranks : {1, 2}) {
      for (const bool sequence : {false, true}) {
        DryRunInput input = input_of(model, {1, 1, ranks}, DType::kBF16);
        input.step.stage.sequence_parallel = sequence;
        const bool gelu = model.activation == nn::ActivationKind::kGelu;
        const auto width = static_cast<double>(model.width);
        const auto hidden = static_cast<double>(model.hidden) / ranks;
        const double heads = static_cast<double>(model.heads) / ranks;
        const double kv_heads = std::max(1.0, static_cast<double>(model.kv_heads) / ranks);
        const double head_size = width / static_cast<double>(model.heads);
        const double outside = sequence ? width / ranks : width;
        const double inputs = 2 * outside;
        const double norms = 2 * width;
        const double attention = (heads + 2 * kv_heads) * head_size + heads * head_size;
        const double before = gelu ? hidden : 2 * hidden;
        const double statistics = (gelu ? 4.0 : 2.0) / (sequence ? ranks : 1) + heads;
        SCOPED_TRACE(::testing::Message() << (gelu ? "gpt" : "llama") << ", " << ranks << " ranks"
                                          << (sequence ? ", sequence parallel" : ""));
        EXPECT_EQ(kept_by_a_layer(input, model, parallel::Recompute::kNone),
                  2 * (inputs + norms + attention + before + hidden) + 4 * statistics);
        const double stay = sequence && ranks > 1 ? norms : 0.0;
        EXPECT_EQ(kept_by_a_layer(input, model, parallel::Recompute::kSelective),
                  2 * (inputs + stay + attention + before) + 4 * statistics);
        EXPECT_EQ(kept_by_a_layer(input, model, parallel::Recompute::kFull), 2 * outside);
      }
    }
  }
}

// The activations of each stage, and the FLOPs of all, with so many blocks of each that are
// recomputed.
struct StagesThatRecompute {
  std::vector<std::size_t> activations;
  double flops = 0.0;
};
StagesThatRecompute stages_that_recompute(DryRunInput input, const parallel::RunOptions& runs) {
  input.step.runs = runs;
  StagesThatRecompute found;
  for (const DryRunResult& stage : plan::dry_run_all(input)) {
    found.activations.push_back(kept_activations(stage));
    found.flops += stage.operations.total().flops;
  }
  return found;
}

// Between none and all, each further block of a stage costs time and takes no memory.
TEST(DryRunAll, MoreRecomputedBlocksHoldLess) {
  GptConfig model = small_llama();
  model.layers = 14;  // 16 blocks
  for (const auto& [stages, schedule] : {std::pair(1, "1f1b"),
                                         {4, "1f1b"},
                                         {2, "gpipe"},
                                         {2, "interleaved"},
                                         {4, "zb-h1"},
                                         {4, "zb-v"}}) {
    DryRunInput input = input_of(model, {1, stages, 1}, DType::kBF16);
    const auto layout = parallel::schedule_layout(schedule, stages, {});
    input.step.schedule = schedule;
    input.step.stage.chunks = layout.chunks;
    input.step.stage.order = layout.order;
    set_micro_batches(input, 8);
    for (const auto recompute : {parallel::Recompute::kSelective, parallel::Recompute::kFull}) {
      SCOPED_TRACE(fmt::format("{} {} {}", stages, schedule, static_cast<int>(recompute)));
      const auto none = stages_that_recompute(input, {});
      const auto all = stages_that_recompute(input, {1, recompute});
      auto before = none;
      bool some_between = false;
      for (int blocks = 1; blocks <= 16; ++blocks) {
        const auto now = stages_that_recompute(input, {1, recompute, blocks});
        for (std::size_t i = 0; i < now.activations.size(); ++i) {
          EXPECT_LE(now.activations[i], before.activations[i]) << blocks << " of stage " << i;
        }
        EXPECT_GE(now.flops, before.flops) << blocks;
        some_between = some_between ||
                       (now.activations != none.activations && now.activations != all.activations);
        before = now;
      }
      EXPECT_EQ(before.activations, all.activations);
      EXPECT_EQ(before.flops, all.flops);
      EXPECT_LT(all.activations.front(), none.activations.front());
      EXPECT_TRUE(some_between);
    }
  }
}

// Blocks without a backward keep nothing, and do not count.
TEST(DryRunAll, FrozenBlocksAreNoneOfTheRecomputed) {
  GptConfig model = small_gpt();
  model.tied = false;
  DryRunInput input = input_of(model, {1, 1, 1}, DType::kF32);
  input.step.stage.trained = nn::trained_parameters(
      input.model, NamePatterns::of_list("embedding.*,positions.*,blocks.[01].*"));
  const auto none = stages_that_recompute(input, {});
  const auto one = stages_that_recompute(input, {1, parallel::Recompute::kFull, 1});
  EXPECT_LT(one.activations.front(), none.activations.front());
  EXPECT_GT(one.flops, none.flops);
}

// The most is held while the gradient of SwiGLU's output is made and used: that, the output, gate
// and up. The gradients of gate and up then take the place of these.
TEST(DryRunAll, SwigluHandsItsMemoryToItsGradient) {
  GptConfig model = small_llama();
  model.hidden = 64 * model.width;
  DryRunInput input = input_of(model, {1, 1, 1}, DType::kBF16);
  input.step.runs.recompute = parallel::Recompute::kFull;
  const auto peak = static_cast<double>(
      plan::dry_run(input, 0).memory.peak[static_cast<std::size_t>(MemoryUse::kActivations)]);
  const auto hidden =
      static_cast<double>(2 * input.micro * input.model.length * model.hidden);  // bytes
  EXPECT_GT(peak, 4 * hidden);
  EXPECT_LT(peak, 4.5 * hidden);
}

// A case of recompute.mode selective: what its first stage keeps less of a layer and a micro-batch,
// in elements per position, and how often each rank calls what makes it again.
struct Selective {
  const char* name;
  GptConfig model;
  GridShape grid;
  bool sequence_parallel = false, gpu = false;
  std::int64_t less;
  std::map<std::string, int> again;  // per layer and micro-batch
};

// Products, attention and communication are not repeated. With GPipe a stage keeps all
// micro-batches at once, so they decide what it holds at most.
TEST(DryRunAll, SelectiveRecomputationDropsWhatFewFlopsMakeAgain) {
  constexpr std::int64_t kWidth = 64, kPositions = 2 * 64, kMicroBatches = 8;
  const std::int64_t gpt = small_gpt().hidden, llama = small_llama().hidden;
  const std::vector<Selective> cases = {
      {"gpt",
       small_gpt(),
       {1, 2, 1},
       false,
       false,
       2 * kWidth + gpt,
       {{"layer_norm", 2}, {"gelu", 1}}},
      {"llama",
       small_llama(),
       {1, 2, 1},
       false,
       false,
       2 * kWidth + llama,
       {{"rms_norm", 2}, {"swiglu", 1}}},
      {"tensor ranks",
       small_gpt(),
       {1, 2, 2},
       false,
       false,
       2 * kWidth + gpt / 2,
       {{"layer_norm", 2}, {"gelu", 1}}},
      {"gathered norms", small_llama(), {1, 2, 2}, true, false, llama / 2, {{"swiglu", 1}}},
      {"GELU of cuBLASLt", small_gpt(), {1, 2, 1}, false, true, 2 * kWidth, {{"layer_norm", 2}}},
      {"SwiGLU on GPUs",
       small_llama(),
       {1, 2, 1},
       false,
       true,
       2 * kWidth + llama,
       {{"rms_norm", 2}, {"swiglu", 1}}},
  };
  for (const Selective& c : cases) {
    SCOPED_TRACE(c.name);
    DryRunInput input = input_of(with_dropout(c.model), c.grid, DType::kBF16);
    input.step.schedule = "gpipe";
    input.step.stage.sequence_parallel = c.sequence_parallel;
    if (c.gpu) input.device.gpu_memory = std::int64_t{80} << 30;
    const DryRunResult kept = plan::dry_run(input, 0);
    input.step.runs.recompute = parallel::Recompute::kSelective;
    const DryRunResult remade = plan::dry_run(input, 0);
    const int layers = 2;  // of the first stage
    const auto less = static_cast<double>(kept_activations(kept) - kept_activations(remade));
    const auto expected = static_cast<double>(2 * layers * kMicroBatches * kPositions * c.less);
    // At its peak the backward of one layer has what that layer dropped, or no longer needs it.
    EXPECT_LE(less, expected);
    EXPECT_GE(less, expected - 2.0 * kPositions * static_cast<double>(c.model.hidden + kWidth));
    for (const auto& [name, count] : kept.operations.by_operation()) {
      const ops::OperationCount& now = remade.operations.by_operation().at(name);
      const auto found = c.again.find(name);
      const int again = found == c.again.end() ? 0 : found->second;
      EXPECT_EQ(now.calls, count.calls + again * layers * kMicroBatches) << name;
      EXPECT_EQ(now.flops, count.flops) << name;
    }
    ASSERT_EQ(remade.traffic.size(), kept.traffic.size());
    for (std::size_t i = 0; i < kept.traffic.size(); ++i) {
      EXPECT_EQ(remade.traffic[i].calls, kept.traffic[i].calls);
      EXPECT_EQ(remade.traffic[i].bytes, kept.traffic[i].bytes);
    }
  }
}

// A rank alone launches whatever a rank of the grid does in a step, and leaves nothing behind.
TEST(LocalPass, RunsTheOperationsOfAllRanks) {
  std::vector<DryRunInput> inputs;
  for (const GridShape& grid : {GridShape{2, 1, 1}, GridShape{1, 4, 1}, GridShape{2, 2, 2}}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      inputs.push_back(input_of(with_dropout(small_gpt()), grid, compute));
      inputs.push_back(input_of(small_llama(), grid, compute));
      inputs.back().step.reduce = compute;
      inputs.back().step.clip_each = 1.0f;
    }
  }
  inputs.push_back(input_of(small_llama(), {1, 2, 1}, DType::kBF16));
  inputs.back().step.stage.split_masters = true;
  inputs.back().step.runs = {1, parallel::Recompute::kFull, 1};
  inputs.push_back(input_of(small_gpt(), {}, DType::kBF16));
  inputs.back().grid[Axis::kShard] = 2;
  inputs.back().step.stage.whole_weights = false;
  set_micro_batches(inputs.back(), 8);
  inputs.push_back(input_of_pictures(true));
  for (DryRunInput& input : inputs) {
    input.device.gpu_memory = std::int64_t{80} << 30;
    input.device.nccl = true;
    ops::Context ctx = ops::make_dry_cuda_context(input.device.gpu_memory);
    const std::size_t before = ctx.allocator->stats().total_live;
    plan::local_pass(ctx, input);
    EXPECT_EQ(ctx.allocator->stats().total_live, before);
    const auto& launched = ctx.dry->by_operation();
    for (const DryRunResult& rank : plan::dry_run_all(input)) {
      for (const auto& [operation, count] : rank.operations.by_operation()) {
        EXPECT_TRUE(launched.contains(operation)) << operation << " on " << input.grid.to_string();
      }
    }
  }
}

// Values are computed where there is a device: the batch has indices of rows that exist.
TEST(LocalPass, ComputesOnADevice) {
  ops::Context ctx = ops::make_cpu_context(1);
  ops::StepState state{.step = 17, .updates = 5};
  ops::write_step_state(ctx, state);
  DryRunInput input = input_of(small_llama(), {2, 2, 2}, DType::kBF16);
  input.step.stage.sequence_parallel = true;
  plan::local_pass(ctx, input);
  plan::local_pass(ctx, input_of_pictures(false));
  EXPECT_EQ(ops::read_step_state(ctx).step, 17);
  EXPECT_EQ(ops::read_step_state(ctx).updates, 5);
}

}  // namespace
}  // namespace trireme::testing
