// What a rank holds on a dry device, compared with one that computes.
#include "trireme/plan/dry_run.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/resident_memory.h"
#include "trireme/ops/libraries.h"
#include "trireme/parallel/partition.h"

#include "support/dry_run_testing.h"

namespace trireme::testing {
namespace {

using models::GptConfig;
using plan::DryRunInput;
using plan::DryRunResult;

nn::MicroBatch micro_batch_of(ops::Context& ctx, const DryRunInput& input) {
  const nn::HostMicroBatch host = input.make_batch(ctx, input.micro, input.model.length, {});
  std::memset(host.samples.raw(), 0, host.samples.bytes());
  for (const nn::Field& field : host.fields) {
    std::memset(field.tensor.raw(), 0, field.tensor.bytes());
  }
  return host.to_device(ctx, input.micro * input.model.length, input.trains);
}

// The same two steps as a dry run, computed.
MemoryStats stats_of_real_steps(const DryRunInput& input) {
  ops::Context ctx = ops::make_cpu_context(input.device.threads);
  DryRank alone({});
  const ProcessGrid grid(alone, input.grid);
  parallel::TrainerStep step(ctx, grid, input.model, input.step);
  alone.recorder().watch_phases([&](std::string_view name, std::int64_t number) {
    ctx.allocator->reached({.name = name, .number = number});
  });
  for (int number = 1; number <= 2; ++number) {
    std::vector<nn::MicroBatch> batches;
    for (int i = 0; i < input.step.work.micro_batches(); ++i)
      batches.push_back(micro_batch_of(ctx, input));
    const parallel::StepResult result = step.train(batches, number, 1e-3f, 1);
    EXPECT_TRUE(result.finite);
  }
  return ctx.allocator->stats();
}

void expect_what_a_real_rank_holds(const DryRunInput& input) {
  const MemoryStats real = stats_of_real_steps(input);
  const MemoryStats dry = plan::dry_run(input, 0).memory;
  EXPECT_EQ(dry.live, real.live);
  EXPECT_EQ(dry.peak, real.peak);
  EXPECT_EQ(dry.at_peak, real.at_peak);
  EXPECT_EQ(dry.total_peak, real.total_peak);
  EXPECT_EQ(dry.peak_point, real.peak_point);
  // Blocks of the host are not reused for the device's.
  EXPECT_NEAR(static_cast<double>(dry.reserved), static_cast<double>(real.reserved),
              0.01 * static_cast<double>(real.reserved));
}

struct Case {
  const char* name;
  GptConfig model;
  DType compute = DType::kF32;
  std::int64_t micro = 2;
  bool sgd = false;
};

class DryRun : public ::testing::TestWithParam<Case> {};

TEST_P(DryRun, HoldsWhatARealRankHolds) {
  const Case& c = GetParam();
  DryRunInput input = input_of(c.model, {}, c.compute);
  input.micro = c.micro;
  if (c.sgd) input.step.optimizer.rule = {.name = "sgd", .momentum = 0.9f};
  expect_what_a_real_rank_holds(input);
}

// Products of blocks in e4m3: layers keep their inputs in half the bytes.
TEST(DryRunOfFp8, HoldsWhatARealRankHolds) {
  for (GptConfig model : {small_gpt(), small_llama()}) {
    model.width = 128;
    model.kv_heads = model.heads;
    DryRunInput input = input_of(model, {}, DType::kBF16);
    const auto activations = [&](bool block_scaled) {
      input.step.stage.block_scaled = block_scaled;
      input.device.gpu_memory = std::int64_t{1} << 40;
      const MemoryStats memory = plan::dry_run(input, 0).memory;
      input.device.gpu_memory = 0;
      return memory.peak[static_cast<std::size_t>(MemoryUse::kActivations)];
    };
    EXPECT_LT(activations(true), activations(false));
    for (const auto recompute : {parallel::Recompute::kNone, parallel::Recompute::kSelective,
                                 parallel::Recompute::kFull}) {
      input.step.runs = {1, recompute};
      expect_what_a_real_rank_holds(input);
    }
  }
}

TEST(DryRunOfPictures, HoldsWhatARealRankHolds) {
  for (const bool bottlenecks : {false, true}) {
    expect_what_a_real_rank_holds(input_of_pictures(bottlenecks));
  }
}

// The host then reads the data of the first steps beside what it has read of the next.
TEST(DryRunOfPictures, HoldsDataFromWhichStatisticsAreComputedAnew) {
  DryRunInput input = input_of_pictures(false);
  const int count = input.step.work.micro_batches();
  input.read_ahead = [](int of_step) { return of_step + 3; };
  const MemoryStats steps = plan::dry_run(input, 0).memory;
  ops::Context ctx = ops::make_dry_context(1);
  const std::size_t before = ctx.allocator->stats().total_live;
  const nn::HostMicroBatch host = input.make_batch(ctx, input.micro, input.model.length, {});
  const std::size_t each = ctx.allocator->stats().total_live - before;
  for (const auto& [recomputed, held] : {std::pair{1, 0}, {2, count}, {3, count + 3}}) {
    input.recomputed_steps = recomputed;
    const MemoryStats memory = plan::dry_run(input, 0).memory;
    EXPECT_EQ(memory.total_peak, steps.total_peak + static_cast<std::size_t>(held) * each);
    EXPECT_EQ(memory.peak_point.name == "optim.recompute_norms", held > 0);
    EXPECT_EQ(memory.live, steps.live);
  }
}

// Frozen parameters have no gradient, no state and, in bf16, no master values.
TEST(DryRunOfFrozen, HoldsWhatARealRankHolds) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const char* frozen : {"embedding.*,positions.*,blocks.[01].*", "*.weight", "*.bias"}) {
      DryRunInput input = input_of(small_gpt(), {}, compute);
      input.step.stage.trained = nn::trained_parameters(input.model, NamePatterns::of_list(frozen));
      for (const auto recompute : {parallel::Recompute::kNone, parallel::Recompute::kSelective,
                                   parallel::Recompute::kFull}) {
        input.step.runs = {1, recompute};
        expect_what_a_real_rank_holds(input);
        input.step.runs.recomputed_blocks = 2;
        expect_what_a_real_rank_holds(input);
      }
      const MemoryStats memory = plan::dry_run(input, 0).memory;
      const auto held = [&](MemoryUse use) {
        return static_cast<double>(memory.live[static_cast<std::size_t>(use)]);
      };
      const auto trained = static_cast<double>(input.step.stage.trained.total());
      const auto all = static_cast<double>(input.model.parameters);
      constexpr double kPadding = 1 << 17;  // bytes; of the vocabulary's rows, and of blocks
      EXPECT_NEAR(held(MemoryUse::kGradients), 4 * trained, kPadding) << frozen;
      EXPECT_NEAR(held(MemoryUse::kOptimizer), 8 * trained, kPadding) << frozen;
      EXPECT_NEAR(held(MemoryUse::kParameters),
                  compute == DType::kF32 ? 4 * all : 2 * all + 4 * trained, kPadding)
          << frozen;
    }
  }
}

// Nothing is computed for what is frozen: no gradient of its weights, and none at all before the
// first block that trains.
TEST(DryRunOfFrozen, ComputesNoGradientThatNobodyWants) {
  GptConfig model = small_gpt();
  model.tied = false;
  const auto run = [&](int layers, const char* frozen, parallel::Recompute recompute) {
    model.layers = layers;
    DryRunInput input = input_of(model, {}, DType::kF32);
    input.step.stage.trained = nn::trained_parameters(
        input.model, frozen ? NamePatterns::of_list(frozen) : NamePatterns());
    input.step.runs.recompute = recompute;
    return plan::dry_run(input, 0).operations;
  };
  using parallel::Recompute;
  const auto products = [](const ops::OperationCounts& counts) {
    return counts.by_operation().at("matmul").flops;
  };
  const double all = products(run(4, nullptr, Recompute::kNone));
  const double layer = all - products(run(3, nullptr, Recompute::kNone));  // three of each product
  const char* first = "embedding.*,positions.*,blocks.[01].*";
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective}) {
    EXPECT_DOUBLE_EQ(all - products(run(4, first, recompute)), 2 * layer * 2 / 3);
    EXPECT_DOUBLE_EQ(all - products(run(4, "blocks.[23].*", recompute)), 2 * layer / 3);
  }
  // The forward of the first two runs once, too.
  EXPECT_DOUBLE_EQ(
      products(run(4, nullptr, Recompute::kFull)) - products(run(4, first, Recompute::kFull)),
      2 * layer);
  const auto backwards = [&](const char* frozen) {
    return run(4, frozen, Recompute::kNone).by_operation().at("attention_backward").calls;
  };
  EXPECT_EQ(2 * backwards(first), backwards(nullptr));
}

// What readers hold ahead counts on a CPU, where it is the memory that ranks compute in.
TEST(DryRunOfPictures, CountsWhatIsReadAhead) {
  DryRunInput input = input_of_pictures(false);
  const auto peak = [&] { return plan::dry_run(input, 0).memory.total_peak; };
  const std::size_t without = peak();
  input.read_ahead = [](int micro_batches) { return micro_batches + 3; };
  constexpr std::size_t kPixelBytes = 2 * 40 * 40 * 3 * sizeof(float), kMicroBatches = 8;
  EXPECT_GE(peak(), without + (kMicroBatches + 3) * kPixelBytes);
  EXPECT_LT(peak(), without + 2 * (kMicroBatches + 3) * kPixelBytes);
  input.device.gpu_memory = std::int64_t{1} << 30;
  const std::size_t on_gpu = peak();
  input.read_ahead = {};
  EXPECT_EQ(peak(), on_gpu);
}

// A stage has no more of a micro-batch than its blocks read, as in training.
TEST(DryRunOfPictures, OnlyTheFirstStageHasPixels) {
  DryRunInput input = input_of_pictures(false);
  input.grid = {1, 3, 1};
  std::vector<std::string> parts;
  input.make_batch = [&, make = input.make_batch](ops::Context& ctx, std::int64_t micro,
                                                  std::int64_t length,
                                                  const plan::BatchParts& read) {
    parts.push_back(std::string(read.inputs ? "inputs " : "") + (read.targets ? "targets" : ""));
    return make(ctx, micro, length, read);
  };
  for (const bool trains : {true, false}) {
    input.trains = trains;
    for (int stage = 0; stage < 3; ++stage) {
      parts.clear();
      plan::dry_run(input, stage);
      ASSERT_FALSE(parts.empty());
      EXPECT_EQ(parts,
                std::vector<std::string>(parts.size(), std::vector{"inputs ", "", "targets"}.at(
                                                           static_cast<std::size_t>(stage))));
    }
  }
}

GptConfig with_logits_in_bf16(GptConfig model) {
  model.logits = DType::kBF16;
  return model;
}

const Case kCases[] = {
    {"gpt", small_gpt()},
    {"gpt_bf16", small_gpt(), DType::kBF16},
    {"gpt_bf16_logits", with_logits_in_bf16(small_gpt()), DType::kBF16},
    {"gpt_fp32_logits", with_logits_in_bf16(small_gpt())},
    {"gpt_fp16", small_gpt(), DType::kF16},
    {"gpt_dropout", with_dropout(small_gpt())},
    {"gpt_sgd", small_gpt(), DType::kF32, 2, true},
    {"gpt_rows", small_gpt(), DType::kF32, 8},
    {"llama", small_llama()},
    {"llama_bf16", small_llama(), DType::kBF16},
};
INSTANTIATE_TEST_SUITE_P(Models, DryRun, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

// The gradient takes the place of logits in bf16, and nothing else is held.
TEST(DryRunAll, LogitsInBf16TakeAThirdOfTheMemory) {
  for (const std::int64_t gpu_memory : {std::int64_t{0}, std::int64_t{1} << 40}) {
    const auto slice = [&](const GptConfig& model) {
      DryRunInput input = input_of(model, {}, DType::kBF16);
      input.device.gpu_memory = gpu_memory;
      const auto use = static_cast<std::size_t>(MemoryUse::kWorkspace);
      return static_cast<std::int64_t>(plan::dry_run(input, 0).memory.peak[use]);
    };
    const GptConfig model = small_gpt();
    const std::int64_t rows = 2 * model.context;
    const std::int64_t logits = rows * nn::vocabulary_rows_in_memory(model.vocabulary, 1);
    // A CPU converts a row of them at a time, and where it has no products in bf16, also a block of
    // the product before.
    const bool on_cpu = gpu_memory == 0;
    const bool converts = on_cpu && !ops::has_native_bf16(ops::make_cpu_context(1));
    const std::int64_t row = on_cpu ? 4 * (logits / rows + 16) : 0;
    const std::int64_t less = converts ? 2 * logits : 4 * logits - row;
    const std::int64_t saved = slice(model) - slice(with_logits_in_bf16(model));
    EXPECT_NEAR(static_cast<double>(saved), static_cast<double>(less), 64.0);
  }
}

TEST(DryRunAll, AnEvaluationHoldsWhatARealOneHolds) {
  DryRunInput input = input_of(with_logits_in_bf16(small_gpt()), {1, 1, 1}, DType::kBF16);
  input.trains = false;
  ops::Context ctx = ops::make_cpu_context(1);
  DryRank alone({});
  const ProcessGrid grid(alone, input.grid);
  parallel::StageOptions options = input.step.stage;
  options.trains = false;
  const parallel::Stage stage(ctx, grid, input.model, options);
  parallel::PipelineExecutor executor(ctx, stage);
  for (int evaluation = 0; evaluation < 2; ++evaluation) {
    parallel::evaluate(executor, 16, [&](int /*i*/) { return micro_batch_of(ctx, input); });
  }
  const MemoryStats real = ctx.allocator->stats(), dry = plan::dry_run(input, 0).memory;
  EXPECT_EQ(dry.peak, real.peak);
  EXPECT_EQ(dry.at_peak, real.at_peak);
  EXPECT_EQ(dry.at_peak[static_cast<std::size_t>(MemoryUse::kGradients)], 0u);
}

TEST(DryRunAll, APredictionHoldsWhatARealOneHolds) {
  DryRunInput input = input_of_pictures(false);
  input.trains = false;
  input.predicts = true;
  ops::Context ctx = ops::make_cpu_context(1);
  DryRank alone({});
  const ProcessGrid grid(alone, input.grid);
  parallel::StageOptions options = input.step.stage;
  options.trains = false;
  const parallel::Stage stage(ctx, grid, input.model, options);
  parallel::PipelineExecutor executor(ctx, stage);
  for (int prediction = 0; prediction < 2; ++prediction) {
    stage.weights().refresh(ctx);
    nn::MicroBatch batch = micro_batch_of(ctx, input);
    const Tensor pixels = batch.fields.find(nn::kPixels);
    batch.fields = {};
    batch.fields.set(nn::kPixels, pixels);
    executor.forward({&batch, 1});
  }
  const MemoryStats real = ctx.allocator->stats(), dry = plan::dry_run(input, 0).memory;
  EXPECT_EQ(dry.peak, real.peak);
  EXPECT_EQ(dry.at_peak, real.at_peak);
}

TEST(DryRunAll, ALongStepHoldsWhatARealOneHolds) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    DryRunInput input = input_of(small_gpt(), {1, 1, 1}, DType::kF32);
    input.step.schedule = schedule;
    set_micro_batches(input, 37);
    const MemoryStats real = stats_of_real_steps(input);
    const MemoryStats dry = plan::dry_run(input, 0).memory;
    EXPECT_NEAR(static_cast<double>(dry.total_peak), static_cast<double>(real.total_peak),
                64.0 * 37)
        << schedule;
    for (std::size_t use = 0; use < kMemoryUses; ++use) {
      EXPECT_NEAR(static_cast<double>(dry.peak[use]), static_cast<double>(real.peak[use]),
                  64.0 * 37)
          << schedule;
    }
  }
}

// A captured step reads micro-batches of its own, and evaluation cannot use what it has taken.
TEST(DryRunAll, ACapturedStepHoldsMicroBatchesOfItsOwn) {
  DryRunInput input = input_of(small_gpt(), {1, 1, 1}, DType::kBF16);
  input.device.gpu_memory = std::int64_t{80} << 30;
  const DryRunResult queued = plan::dry_run(input, 0);
  input.step.cuda_graphs = true;
  const DryRunResult captured = plan::dry_run(input, 0);
  // What the second step does is counted where it is captured.
  EXPECT_EQ(captured.operations.by_operation().at("matmul").flops,
            queued.operations.by_operation().at("matmul").flops);
  EXPECT_EQ(captured.traffic, queued.traffic);
  std::size_t bytes = 0;
  {
    ops::Context ctx = ops::make_dry_cuda_context(std::size_t{80} << 30);
    const std::size_t before = ctx.allocator->stats().total_live;
    std::vector<nn::MicroBatch> batches;
    for (int i = 0; i < input.step.work.micro_batches(); ++i) {
      batches.push_back(input.make_batch(ctx, input.micro, input.model.length, {})
                            .to_device(ctx, input.micro * input.model.length, true));
    }
    bytes = ctx.allocator->stats().total_live - before;
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(captured.memory.total_peak, queued.memory.total_peak + bytes);
  EXPECT_GE(captured.memory.reserved, queued.memory.reserved + bytes);
  // Over MPI a step that several ranks compute is not captured.
  input.grid = {2, 1, 1};
  set_micro_batches(input, 8);
  const std::size_t by_mpi = plan::dry_run(input, 0).memory.total_peak;
  input.step.cuda_graphs = false;
  EXPECT_EQ(by_mpi, plan::dry_run(input, 0).memory.total_peak);
}

TEST(DryRunAll, OnGpusWorkspaceDiffers) {
  DryRunInput input = input_of(small_gpt(), {2, 1, 2}, DType::kBF16);
  const DryRunResult cpu = plan::dry_run(input, 0);
  input.device.gpu_memory = std::int64_t{80} << 30;
  input.device.nccl = true;
  const DryRunResult gpu = plan::dry_run(input, 0);
  const auto live = [](const DryRunResult& result, MemoryUse use) {
    return result.memory.live[static_cast<std::size_t>(use)];
  };
  for (const MemoryUse use :
       {MemoryUse::kParameters, MemoryUse::kGradients, MemoryUse::kOptimizer}) {
    EXPECT_EQ(live(gpu, use), live(cpu, use));
  }
  EXPECT_EQ(gpu.operations.by_operation().at("matmul").flops,
            cpu.operations.by_operation().at("matmul").flops);
  const auto workspace = static_cast<std::size_t>(MemoryUse::kWorkspace);
  EXPECT_GE(gpu.memory.peak[workspace], std::size_t{32} << 20);  // cuBLASLt's
  EXPECT_LT(cpu.memory.peak[workspace], std::size_t{8} << 20);
  // NCCL does not fix the order of sums, so copies are handed on.
  const auto broadcasts = [](const DryRunResult& result) {
    return std::ranges::count(result.traffic, "broadcast", &DryTraffic::operation);
  };
  EXPECT_EQ(broadcasts(cpu), 0);
  EXPECT_GT(broadcasts(gpu), 0);
  input.device.nccl = false;
  EXPECT_EQ(broadcasts(plan::dry_run(input, 0)), 0);
  input.keeps_order = false;
  EXPECT_GT(broadcasts(plan::dry_run(input, 0)), 0);
}

// The host's part of a micro-batch is real memory, of any size, but nobody reads it.
TEST(DryRunAll, HostMemoryThatNobodyTouchesTakesNone) {
  ops::Context ctx = ops::make_dry_context(1);
  const double before = peak_resident_bytes();
  const Tensor host = ctx.allocate_host({std::int64_t{1} << 28}, DType::kI32);  // 1 GiB
  EXPECT_EQ(host.data<std::int32_t>()[0], 0);
  EXPECT_EQ(host.data<std::int32_t>()[host.elements() - 1], 0);
  EXPECT_LT(peak_resident_bytes() - before, 1 << 28);
}

// The receiver knows the plan alone.
TEST(DryRunAll, ABlockThatReturnsOtherTensorsThanItsPlanSaysIsAFault) {
  DryRunInput input = input_of(small_gpt(), {1, 2, 1}, DType::kF32);
  EXPECT_NO_THROW(plan::dry_run(input, 0));
  for (nn::BlockPlan& block : input.model.blocks) {
    if (block.loss) continue;
    block.boundary = [](std::int64_t batch, std::int64_t length, const nn::TensorParallel&) {
      return std::vector<nn::BoundaryTensor>{{{batch, length}}};
    };
  }
  try {
    plan::dry_run(input, 0);
    FAIL() << "sent";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "part 0 of the model returns other tensors than its plan says");
  }
}

// Large transformers are bound by their products, so neither the bytes of their blocks nor those of
// their boundaries move a cut.
TEST(DryRunAll, PublishedTransformersAreCutByTheirFlops) {
  for (const std::string_view preset : models::gpt_preset_names()) {
    if (preset.starts_with("test-")) continue;
    const nn::ModelPlan model = models::gpt_plan(models::gpt_preset(preset));
    std::vector<double> flops;
    for (const nn::BlockPlan& block : model.blocks) flops.push_back(block.flops);
    for (const int stages : {2, 3, 4, 6, 8, 12}) {
      if (stages > std::ssize(model.blocks)) continue;
      EXPECT_EQ(parallel::cut_model(model, {.stages = stages}),
                parallel::partition_blocks(flops, stages))
          << preset << ", " << stages << " stages";
    }
  }
}

}  // namespace
}  // namespace trireme::testing
