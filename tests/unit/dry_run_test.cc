// Training on a dry device beside training on a real one, and on grids that no machine here has.
#include "trireme/plan/dry_run.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/resident_memory.h"
#include "trireme/parallel/partition.h"
#include "trireme/tasks/pictures.h"

#include "models/resnet/resnet.h"
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
    for (int i = 0; i < input.micro_batches; ++i) batches.push_back(micro_batch_of(ctx, input));
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
  if (c.sgd) input.step.optimizer = {.kind = optim::OptimizerConfig::Kind::kSgd, .momentum = 0.9f};
  expect_what_a_real_rank_holds(input);
}

DryRunInput input_of_pictures(bool bottlenecks) {
  models::ResNetConfig config;
  config.image = 40;
  config.classes = 7;
  config.width = 8;
  config.bottlenecks = bottlenecks;
  DryRunInput input = input_of(small_gpt(), {}, DType::kF32);
  input.model = models::resnet_plan(config);
  input.make_batch = [](ops::Context& ctx, std::int64_t micro, std::int64_t,
                        const plan::BatchParts& parts) {
    return make_host_pictures(ctx, micro, {40, 40}, parts.inputs, parts.targets);
  };
  return input;
}

TEST(DryRunOfPictures, HoldsWhatARealRankHolds) {
  for (const bool bottlenecks : {false, true}) {
    expect_what_a_real_rank_holds(input_of_pictures(bottlenecks));
  }
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

const Case kCases[] = {
    {"gpt", small_gpt()},
    {"gpt_bf16", small_gpt(), DType::kBF16},
    {"gpt_fp16", small_gpt(), DType::kF16},
    {"gpt_dropout", with_dropout(small_gpt())},
    {"gpt_sgd", small_gpt(), DType::kF32, 2, true},
    {"gpt_rows", small_gpt(), DType::kF32, 8},
    {"llama", small_llama()},
    {"llama_bf16", small_llama(), DType::kBF16},
};
INSTANTIATE_TEST_SUITE_P(Models, DryRun, ::testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(DryRunAll, TellsKindsOfRanksApart) {
  const GridShape grid(3, 2, 2);
  const auto results = plan::dry_run_all(input_of(small_gpt(), grid, DType::kF32));
  // 8 micro-batches among 3 replicas: two have 3, one has 2.
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(ranks_of(results), 12);
  for (const int stage : {0, 1}) {
    const DryRunResult& more = results[static_cast<std::size_t>(2 * stage)];
    const DryRunResult& fewer = results[static_cast<std::size_t>(2 * stage) + 1];
    EXPECT_EQ(grid.index(more.place, Axis::kPipeline), stage);
    EXPECT_EQ(more.micro_batches, 3);
    EXPECT_EQ(more.ranks, 4);
    EXPECT_EQ(fewer.micro_batches, 2);
    EXPECT_EQ(fewer.ranks, 2);
    EXPECT_GT(more.memory.total_peak, fewer.memory.total_peak);
  }
}

// Stages between the first and the last with as many blocks differ in how many micro-batches they
// keep: one stands for all.
TEST(DryRunAll, TheLargestAreAmongFewerRanks) {
  GptConfig model = small_gpt();
  model.layers = 16;
  for (const char* schedule : {"1f1b", "gpipe"}) {
    DryRunInput input = input_of(model, {3, 8, 2}, DType::kF32);
    input.step.schedule = schedule;
    input.micro_batches = 32;
    const auto all = plan::dry_run_all(input), few = plan::dry_run_largest(input);
    EXPECT_LT(few.size(), all.size() / 2);
    const auto most = [](const std::vector<DryRunResult>& results) {
      return std::ranges::max_element(results, {},
                                      [](const auto& result) { return result.memory.total_peak; })
          ->memory.total_peak;
    };
    EXPECT_EQ(most(few), most(all)) << schedule;
    for (const DryRunResult& result : few) EXPECT_EQ(result.micro_batches, 11);
  }
}

// The last stages hold most where weight gradients wait.
TEST(DryRunAll, TheLargestIsFoundWhereWeightGradientsWait) {
  GptConfig model = small_gpt();
  model.layers = 22;
  for (const char* schedule : {"zb-h1", "zb-v", "interleaved"}) {
    for (const auto recompute : {parallel::Recompute::kNone, parallel::Recompute::kFull}) {
      DryRunInput input = input_of(model, {1, 6, 1}, DType::kF32);
      input.step.schedule = schedule;
      input.step.runs.recompute = recompute;
      const auto layout = parallel::schedule_layout(schedule, 6, {});
      input.step.stage.chunks = layout.chunks;
      input.step.stage.order = layout.order;
      input.micro_batches = 24;
      std::size_t most = 0, most_of_few = 0;
      for (const auto& result : plan::dry_run_all(input)) {
        most = std::max(most, result.memory.total_peak);
      }
      for (const auto& result : plan::dry_run_largest(input)) {
        most_of_few = std::max(most_of_few, result.memory.total_peak);
      }
      EXPECT_EQ(most_of_few, most) << schedule;
    }
  }
}

// A shortened step has whole runs too (batch.runs).
TEST(DryRunAll, ALongStepOfSeveralRunsIsShortened) {
  for (const auto& [stages, runs] : {std::pair{1, 2}, {1, 16}, {4, 16}, {4, 64}, {3, 4}}) {
    DryRunInput input = input_of(small_gpt(), {1, stages, 1}, DType::kF32);
    input.micro_batches = 192;
    input.step.batch_runs.runs = runs;
    EXPECT_EQ(plan::dry_run(input, 0).micro_batches, 192) << stages << " stages, " << runs;
  }
}

// Where each micro-batch is a run and whole gradients do not stay, a further layer costs its shard
// for each partial sum that waits. Of whole gradients only those of a few blocks are there.
TEST(DryRunAll, WholeGradientsAreThoseOfAFewBlocks) {
  constexpr int kReplicas = 4;
  GridShape grid{1, 1, 1};
  grid[Axis::kShard] = kReplicas;
  const auto peak = [&](int layers, int micro_batches, bool whole, DType travel) {
    models::GptConfig model = small_gpt();
    model.layers = layers;
    DryRunInput input = input_of(model, grid, DType::kF32);
    input.micro_batches = micro_batches;
    input.step.reduce = travel;
    input.step.stage.whole_gradients = whole;
    input.step.batch_runs = {micro_batches, true};
    const MemoryStats memory = plan::dry_run(input, 0).memory;
    return static_cast<double>(memory.peak[static_cast<std::size_t>(MemoryUse::kGradients)]);
  };
  for (const DType travel : {DType::kF32, DType::kBF16}) {
    const double of_layer = (peak(9, 4, true, travel) - peak(8, 4, true, travel)) / kReplicas;
    const double shard = of_layer / (travel == DType::kBF16 ? 1.5 : 1.0);
    for (const auto& [micro_batches, shards] : {std::pair{4, 1}, {8, 1}, {16, 2}, {256, 6}}) {
      const double more =
          peak(9, micro_batches, false, travel) - peak(8, micro_batches, false, travel);
      EXPECT_NEAR(more / shard, shards, 0.05 * shards) << micro_batches;
    }
  }
}

// Each micro-batch is reduced to shards.
DryRunInput sharded_input(const char* schedule, int stages, bool tied, int blocks_at_once) {
  GridShape grid{1, stages, 1};
  grid[Axis::kShard] = 2;
  models::GptConfig model = small_gpt();
  model.layers = 10;
  model.tied = tied;
  DryRunInput input = input_of(model, grid, DType::kF32);
  input.micro_batches = 16;
  input.step.schedule = schedule;
  const auto layout = parallel::schedule_layout(schedule, stages, {});
  input.step.stage.chunks = layout.chunks;
  input.step.stage.order = layout.order;
  input.step.stage.whole_gradients = false;
  input.step.stage.separates_uses = true;
  input.step.batch_runs = {input.micro_batches, true};
  input.step.runs = {blocks_at_once, parallel::Recompute::kFull};
  return input;
}

std::size_t peak_of_gradients(const std::vector<DryRunResult>& results) {
  std::size_t most = 0;
  for (const DryRunResult& result : results) {
    most = std::max(most, result.memory.peak[static_cast<std::size_t>(MemoryUse::kGradients)]);
  }
  return most;
}

// So that libraries need not register memory in the first step, and the default of batch.runs knows
// what a step holds. On CPUs a run connects nothing beforehand.
TEST(MostGradients, AreWhatAStepTakes) {
  for (const char* schedule : {"1f1b", "interleaved", "zb-h1", "zb-v"}) {
    for (const int blocks : {1, 2, 3}) {
      for (const bool tied : {false, true}) {
        for (const int stages : {1, 2}) {
          if (stages == 1 && std::string(schedule) != "1f1b") continue;
          const DryRunInput input = sharded_input(schedule, stages, tied, blocks);
          EXPECT_EQ(plan::most_gradients(input), peak_of_gradients(plan::dry_run_largest(input)))
              << schedule << ", " << blocks << " blocks at once, " << (tied ? "tied, " : "")
              << stages << " stages";
        }
      }
    }
  }
}

TEST(MostGradients, HaveTheStatesOfConvolutionalNetworks) {
  DryRunInput input = input_of_pictures(true);
  input.grid[Axis::kShard] = 2;
  input.micro_batches = 16;
  for (const int runs : {2, 16}) {
    input.step.batch_runs = {runs, true};
    input.step.stage.whole_gradients = runs == 2;
    input.step.stage.separates_uses = true;
    EXPECT_EQ(plan::most_gradients(input), peak_of_gradients(plan::dry_run_largest(input))) << runs;
  }
}

// A GPU's memory for gradients is there before the first step.
TEST(MostGradients, AreTakenBeforeTheFirstStepOnAGpu) {
  for (const int blocks : {1, 3}) {
    DryRunInput input = sharded_input("1f1b", 1, true, blocks);
    const std::size_t before = plan::most_gradients(input);
    input.device = {.gpu_memory = std::int64_t{80} << 30, .nccl = true};
    EXPECT_EQ(peak_of_gradients(plan::dry_run_largest(input)), before) << blocks;
  }
}

TEST(DryRunAll, AnEvaluationHoldsWhatARealOneHolds) {
  DryRunInput input = input_of(small_gpt(), {1, 1, 1}, DType::kBF16);
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

// A block that asks for empty micro-batches, and counts them.
class Asking final : public nn::Block {
 public:
  Asking(std::unique_ptr<nn::Block> inner, int& empty) : inner_(std::move(inner)), empty_(empty) {
    parameters_ = std::move(inner_->parameters());
  }
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    return inner_->forward(tape, batch, std::move(in));
  }
  void forward_empty(ops::Context& /*ctx*/) const override { ++empty_; }

 private:
  std::unique_ptr<nn::Block> inner_;
  int& empty_;
};

// Of 7 or 1001 micro-batches one of two replicas has one fewer, in each of two steps. A long step
// is run for two numbers of micro-batches.
TEST(DryRunAll, ReplicasThatTalkRunEmptyMicroBatches) {
  int empty = 0;
  DryRunInput input = input_of(small_gpt(), {2, 1, 1}, DType::kF32);
  nn::BlockPlan& block = input.model.blocks[1];
  block.collective = true;
  block.build = [inner = block.build, &empty](nn::BuildContext& build) {
    return std::make_unique<Asking>(inner(build), empty);
  };
  const auto empty_of = [&](int micro_batches, int place) {
    empty = 0;
    input.micro_batches = micro_batches;
    plan::dry_run(input, place);
    return empty;
  };
  EXPECT_EQ(empty_of(7, 0), 2);
  EXPECT_EQ(empty_of(7, 1), 0);
  EXPECT_EQ(empty_of(1001, 0), 4);
}

// A long step is not run whole.
TEST(DryRunAll, ALongStepIsCountedAsIfItWereRun) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    for (const int pipeline : {1, 2, 3}) {
      DryRunInput input = input_of(small_gpt(), {1, pipeline, 1}, DType::kF32);
      input.step.schedule = schedule;
      const auto with = [&](int micro_batches) {
        input.micro_batches = micro_batches;
        return plan::dry_run(input, pipeline - 1);
      };
      const int run = 2 * pipeline + 8;  // whole
      const DryRunResult shorter = with(run - 1), whole = with(run), longer = with(1000);
      const auto grown = [&](double at_shorter, double at_whole) {
        return at_whole + (1000 - run) * (at_whole - at_shorter);
      };
      const auto flops = [](const DryRunResult& result) {
        return result.operations.by_operation().at("matmul").flops;
      };
      EXPECT_EQ(longer.micro_batches, 1000);
      EXPECT_EQ(flops(longer), grown(flops(shorter), flops(whole)));
      // The losses are one block, which is rounded up to a size class.
      const auto peak = [](const DryRunResult& result) {
        return static_cast<double>(result.memory.total_peak);
      };
      EXPECT_NEAR(peak(longer), grown(peak(shorter), peak(whole)), 64.0 * 1000) << schedule;
      for (std::size_t i = 0; i < whole.traffic.size(); ++i) {
        EXPECT_EQ(static_cast<double>(longer.traffic[i].bytes),
                  grown(static_cast<double>(shorter.traffic[i].bytes),
                        static_cast<double>(whole.traffic[i].bytes)));
      }
    }
  }
}

TEST(DryRunAll, ALongStepHoldsWhatARealOneHolds) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    DryRunInput input = input_of(small_gpt(), {1, 1, 1}, DType::kF32);
    input.step.schedule = schedule;
    input.micro_batches = 37;
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
    for (int i = 0; i < input.micro_batches; ++i) {
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
      EXPECT_EQ(parallel::cut_model(model, {.stages = stages}),
                parallel::partition_blocks(flops, stages))
          << preset << ", " << stages << " stages";
    }
  }
}

TEST(DryRunAll, WhatNoAddressCanReachIsRefused) {
  GptConfig model = small_gpt();
  model.layers = 512;
  model.width = model.hidden = 1 << 20;
  model.context = 1 << 16;
  DryRunInput input = input_of(model, {1, 1, 1}, DType::kF32);
  input.micro = 1 << 16;
  EXPECT_THROW(plan::dry_run(input, 0), OutOfMemoryError);
  // Nor may what is extrapolated wrap around.
  input.micro = 1;
  model.context = 256;
  input.model = models::gpt_plan(model);
  input.step.schedule = "gpipe";
  input.micro_batches = 1 << 24;
  EXPECT_THROW(plan::dry_run(input, 0), OutOfMemoryError);
}

// Nobody has this machine here: the point is that it takes no memory and little time.
TEST(DryRunAll, RunsASeventyBillionModelOnThousandsOfRanks) {
  const GptConfig model{.layers = 80,
                        .width = 8192,
                        .heads = 64,
                        .kv_heads = 8,
                        .hidden = 28672,
                        .vocabulary = 128256,
                        .context = 8192,
                        .norm = nn::NormKind::kRms,
                        .activation = nn::ActivationKind::kSwiglu,
                        .positions = nn::PositionKind::kRotary,
                        .tied = false,
                        .bias = false};
  DryRunInput input = input_of(model, {64, 8, 8}, DType::kBF16);
  input.micro = 1;
  input.micro_batches = 64 * 16;
  const auto results = plan::dry_run_all(input);
  EXPECT_EQ(ranks_of(results), 4096);
  double parameters = 0.0;
  for (const DryRunResult& result : results) {
    const auto bytes =
        static_cast<double>(result.memory.live[static_cast<std::size_t>(MemoryUse::kOptimizer)]);
    parameters += result.ranks / 64 * bytes / 8;  // two fp32 averages
  }
  EXPECT_NEAR(parameters, static_cast<double>(input.model.parameters), 0.001 * parameters);
}

}  // namespace
}  // namespace trireme::testing
