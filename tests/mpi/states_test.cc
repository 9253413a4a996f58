// Tensors without gradient: every grid has the same, checkpoints hold them, and steps that are
// skipped leave them alone.
#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "trireme/nn/state.h"
#include "trireme/parallel/copy_check.h"
#include "trireme/plan/dry_run.h"
#include "trireme/setup/checkpoint_tensors.h"

#include "support/message_of.h"
#include "support/mpi_test.h"
#include "support/picture_model.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

constexpr int kMicroBatches = 8;

// Those with all ranks.
std::vector<GridShape> grids() {
  switch (runtime().size()) {
    case 1:
      return {{1, 1, 1}};
    case 2:
      return {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
    default:
      return {{4, 1, 1}, {1, 4, 1}, {2, 2, 1}, {2, 1, 2}};
  }
}

void expect_part_of(const std::map<std::string, std::string>& all,
                    const std::map<std::string, std::string>& part, const std::string& what) {
  EXPECT_EQ(all.size(), 5u);
  for (const auto& [name, bits] : part) EXPECT_TRUE(bits == all.at(name)) << name << ", " << what;
}

// The same micro-batches on one rank and on a grid.
TEST(States, EveryGridHasTheSame) {
  PictureTraining one({1, 1, 1});
  std::vector<std::unique_ptr<PictureTraining>> all;
  for (const GridShape& shape : grids()) all.push_back(std::make_unique<PictureTraining>(shape));
  for (int step = 0; step < 3; ++step) {
    const parallel::StepResult of_one = one.train(step);
    for (const auto& training : all) {
      SCOPED_TRACE(training->grid().shape().to_string());
      const parallel::StepResult of_all = training->train(step);
      EXPECT_NEAR(of_all.loss, of_one.loss, 2e-5 * of_one.loss);
      EXPECT_NEAR(of_all.gradient_norm, of_one.gradient_norm, 1e-4 * of_one.gradient_norm);
      for (const auto& [name, values] : training->states()) {
        EXPECT_LT(relative_error(values, one.states().at(name)), 1e-4) << name;
      }
    }
  }
}

TEST(States, AveragesTakeTheirPlaceAndGiveItBack) {
  ops::Context ctx = ops::make_cpu_context(1);
  nn::State one({.name = "one", .shape = {2, 2}, .initial = {0.0f, 1.0f}});
  nn::State other({.name = "other", .shape = {1, 3}, .initial = {5.0f}});
  nn::StageStates states(ctx, {&one, &other});
  EXPECT_FALSE(one.average().defined());
  states.hold_averages(ctx);
  EXPECT_EQ(bits_of(other.average()), bits_of(other.value()));
  const float* const address = one.value().data<float>();
  one.value().data<float>()[0] = 4.0f;
  ctx.step_state->step = 2;
  ctx.step_state->averaged = 2;
  states.average(ctx, {.decay = 1.0f});
  EXPECT_EQ(values_of(one.average()), (Values{2.0, 0.0, 1.0, 1.0}));
  states.exchange_averages(ctx);
  EXPECT_EQ(values_of(one.value()), (Values{2.0, 0.0, 1.0, 1.0}));
  EXPECT_EQ(values_of(one.average()), (Values{4.0, 0.0, 1.0, 1.0}));
  EXPECT_EQ(one.value().data<float>(), address);
  states.exchange_averages(ctx);
  EXPECT_EQ(values_of(one.value()), (Values{4.0, 0.0, 1.0, 1.0}));
}

struct Layout {
  GridShape grid;
  std::string schedule = "1f1b";
  bool rounds = false;  // batch.runs are reduced one by one
  bool shards = false;
  parallel::Recompute recompute = parallel::Recompute::kNone;
  std::optional<int> recomputed_blocks = {};
};

parallel::StepOptions options_of(const Layout& layout, int runs,
                                 int micro_batches = kMicroBatches) {
  parallel::StepOptions options;
  options.work = parallel::WorkSplit::even(micro_batches, layout.grid.extent(kDataAxes),
                                           {runs, layout.rounds});
  options.schedule = layout.schedule;
  const auto stages =
      parallel::schedule_layout(layout.schedule, layout.grid[Axis::kPipeline], std::nullopt);
  options.stage.chunks = stages.chunks;
  options.stage.order = stages.order;
  options.stage.whole_weights = !layout.shards;
  options.stage.whole_gradients = !layout.shards || !layout.rounds;
  options.runs = {1, layout.recompute, layout.recomputed_blocks};
  return options;
}

// Equal runs of micro-batches give equal bits: however many replicas add up which of them, on
// whatever stages, in the order of whatever schedule.
TEST(States, EqualRunsGiveEqualBitsOnEveryLayout) {
  using enum parallel::Recompute;
  std::vector<Layout> layouts = {{.grid = {1, 1, 1}, .recompute = kFull}};
  if (runtime().size() == 2) {
    layouts = {{.grid = {2, 1, 1}},
               {.grid = {2, 1, 1}, .rounds = true},
               {.grid = {2, 1, 1}, .recompute = kFull, .recomputed_blocks = 2},
               {.grid = {1, 2, 1}, .schedule = "gpipe", .recompute = kFull},
               {.grid = {1, 2, 1}, .recompute = kFull, .recomputed_blocks = 1},
               {.grid = {1, 2, 1}, .schedule = "zb-v"}};
  } else if (runtime().size() == 4) {
    layouts = {{.grid = {4, 1, 1}, .recompute = kSelective},
               {.grid = {4, 1, 1}, .rounds = true},
               {.grid = {2, 2, 1}},
               {.grid = {2, 2, 1}, .rounds = true}};
    GridShape shards(1, 1, 1);
    shards[Axis::kShard] = 4;
    layouts.push_back({.grid = shards, .rounds = true, .shards = true});
  }
  constexpr int kSteps = 2;
  for (const int runs : {4, 8}) {
    PictureTraining one({1, 1, 1}, options_of({.grid = {1, 1, 1}}, runs));
    for (int step = 0; step < kSteps; ++step) one.train(step, kMicroBatches);
    for (const Layout& layout : layouts) {
      PictureTraining training(layout.grid, options_of(layout, runs));
      for (int step = 0; step < kSteps; ++step) training.train(step, kMicroBatches);
      expect_part_of(one.state_bits(), training.state_bits(),
                     layout.grid.to_string() + (layout.rounds ? ", in rounds" : ""));
    }
  }
}

// Where the runs add up along the tree, they fold to what one micro-batch after the other makes.
TEST(States, RunsFoldInTheOrderOfMicroBatches) {
  if (runtime().size() > 1) GTEST_SKIP() << "for one rank";
  const std::string name = "stem.norm.running";
  PictureTraining training({1, 1, 1}, options_of({.grid = {1, 1, 1}}, 4, 4));
  const Values initial = training.states().at(name);
  Values expected = initial;
  for (int m = 0; m < 4; ++m) {
    // A step of this micro-batch alone, from the same weights, tells what it proposes.
    PictureTraining alone({1, 1, 1});
    alone.train(m, 1);
    const Values after = alone.states().at(name);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = 0.9 * expected[i] + (after[i] - 0.9 * initial[i]);
    }
  }
  training.train(0, 4);
  EXPECT_LT(relative_error(training.states().at(name), expected), 1e-5);
}

// With three micro-batches on two replicas that gather weights one of them runs an empty one.
TEST(States, EmptyMicroBatchesProposeNothing) {
  if (runtime().size() == 1) GTEST_SKIP() << "for several replicas";
  GridShape shape(1, 1, 1);
  shape[Axis::kShard] = runtime().size();
  const int micro_batches = runtime().size() + 1;
  PictureTraining one({1, 1, 1}),
      shards(shape, options_of({.grid = shape, .shards = true}, 0, micro_batches));
  for (int step = 0; step < 2; ++step) {
    one.train(step, micro_batches);
    shards.train(step, micro_batches);
    for (const auto& [name, values] : shards.states()) {
      EXPECT_LT(relative_error(values, one.states().at(name)), 1e-4) << name;
    }
  }
}

TEST(States, ASkippedStepChangesNone) {
  PictureTraining model({runtime().size(), 1, 1});
  model.train(0);
  const auto before = model.state_bits();
  const nn::Parameter* last = model.stage().parameters().back();
  const auto weights = last->weight().span<float>();
  const float saved = weights[0];
  weights[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(model.train(1).finite);
  EXPECT_EQ(model.state_bits(), before);
  // What was proposed in it is gone.
  weights[0] = saved;
  PictureTraining other({runtime().size(), 1, 1});
  other.train(0);
  model.train(2);
  other.train(2);
  EXPECT_EQ(model.state_bits(), other.state_bits());
}

// Steps whose scaled gradients overflow in fp16.
TEST(States, AnOverflowInFp16ChangesNone) {
  for (const GridShape& shape : grids()) {
    SCOPED_TRACE(shape.to_string());
    parallel::StepOptions options;
    options.stage.compute = DType::kF16;
    options.loss_scaling = {.initial = 0x1p20f, .largest = 0x1p20f};
    PictureTraining model(shape, options);
    const auto before = model.state_bits();
    int skipped = 0;
    for (; !model.train(0).finite && skipped < 20; ++skipped) {
      EXPECT_EQ(model.state_bits(), before);
    }
    EXPECT_GE(skipped, 3);
    options.loss_scaling.initial = 1024.0f;
    PictureTraining other(shape, options);
    EXPECT_TRUE(other.train(0).finite);
    EXPECT_EQ(model.state_bits(), other.state_bits());
  }
}

TEST(States, DryRunsCountThem) {
  for (const GridShape& shape : grids()) {
    for (const bool rounds : {false, true}) {
      SCOPED_TRACE(shape.to_string() + (rounds ? ", in rounds" : ""));
      const Layout layout{.grid = shape, .rounds = rounds};
      plan::DryRunInput input{
          .model = picture_plan(), .step = options_of(layout, 8), .grid = shape};
      input.micro = kPicturesOfMicroBatch;
      input.make_batch = [](ops::Context& to, std::int64_t micro, std::int64_t length,
                            const plan::BatchParts& /*parts*/) {
        return undefined_pictures(to, micro, length);
      };
      PictureTraining real(shape, input.step);
      for (int step = 0; step < 2; ++step) real.train(step, 8);
      const MemoryStats held = real.ctx().allocator->stats();
      const plan::DryRunResult dry = plan::dry_run(input, runtime().rank());
      for (const MemoryUse use : {MemoryUse::kParameters, MemoryUse::kGradients}) {
        const auto i = static_cast<std::size_t>(use);
        EXPECT_EQ(dry.memory.live[i], held.live[i]) << name_of(use);
      }
    }
  }
}

TEST(States, ADriftIsNamed) {
  if (runtime().size() != 4) GTEST_SKIP() << "for two replicas of two ranks";
  for (const GridShape& shape : {GridShape(2, 2, 1), GridShape(2, 1, 2)}) {
    PictureTraining model(shape);
    model.train(0);
    const auto check = [&] {
      parallel::check_copies(model.ctx(), model.stage(), model.step().optimizer(), 1);
    };
    EXPECT_NO_THROW(check());
    if (runtime().rank() == 3) {
      const nn::State* last = model.stage().states().states().back();
      EXPECT_EQ(last->name(), "last.norm.running");
      reinterpret_cast<std::uint32_t*>(last->value().data<float>())[1] ^= 1u;
    }
    EXPECT_EQ(message_of<InternalError>(check),
              "after step 1 ranks that must hold copies do not, in the state last.norm.running: "
              "rank 1 holds one value, rank 3 another. Suspect the memory or the processor of a "
              "rank that differs, and go on from a checkpoint before");
  }
}

// Batch norms over all replicas: as one rank computes them whose micro-batches have the samples of
// all replicas' ones.
TEST(SyncedBatchNorms, EqualOneRankWithTheMicroBatchesOfAllReplicas) {
  using enum parallel::Recompute;
  std::vector<Layout> layouts = {{.grid = {1, 1, 1}}};
  if (runtime().size() == 2) {
    layouts = {{.grid = {2, 1, 1}},
               {.grid = {2, 1, 1}, .recompute = kFull},
               {.grid = {2, 1, 1}, .recompute = kSelective}};
  } else if (runtime().size() == 4) {
    GridShape shards(1, 1, 1);
    shards[Axis::kShard] = 4;
    layouts = {{.grid = {4, 1, 1}, .rounds = true},
               {.grid = {2, 2, 1}},
               {.grid = {2, 2, 1}, .schedule = "zb-h1"},
               {.grid = shards, .shards = true}};
  }
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.grid.to_string() + ", " + layout.schedule);
    const int replicas = layout.grid.extent(kDataAxes);
    parallel::StepOptions options = options_of(layout, layout.rounds ? kMicroBatches : 0);
    const auto deal = [&](bool dealt) {
      parallel::BatchRuns rule = options.work.rule();
      rule.dealt = dealt;
      options.work = parallel::WorkSplit::even(kMicroBatches, replicas, rule);
    };
    deal(true);
    PictureTraining synced(layout.grid, options, picture_plan(true)), one({1, 1, 1});
    for (int step = 0; step < 3; ++step) {
      const parallel::StepResult got = synced.train(step, kMicroBatches);
      const parallel::StepResult expected =
          one.train(step, kMicroBatches / replicas, kPicturesOfMicroBatch * replicas);
      EXPECT_NEAR(got.loss, expected.loss, 2e-5 * expected.loss);
      EXPECT_NEAR(got.gradient_norm, expected.gradient_norm, 1e-4 * expected.gradient_norm);
      for (const auto& [name, values] : synced.states()) {
        EXPECT_LT(relative_error(values, one.states().at(name)), 1e-4) << name;
      }
    }
    EXPECT_NO_THROW(
        parallel::check_copies(synced.ctx(), synced.stage(), synced.step().optimizer(), 3));
    if (replicas == 1) continue;
    // With statistics of single micro-batches it is another loss.
    deal(false);
    PictureTraining apart(layout.grid, options), together({1, 1, 1});
    const double expected =
        together.train(0, kMicroBatches / replicas, kPicturesOfMicroBatch * replicas).loss;
    EXPECT_GT(std::abs(apart.train(0, kMicroBatches).loss - expected), 1e-3 * expected);
  }
}

// Replicas that compute neighbouring micro-batches would mix other samples than one rank does.
TEST(SyncedBatchNorms, WantTheirMicroBatchesDealtOut) {
  if (runtime().size() != 2) GTEST_SKIP() << "for two replicas";
  PictureTraining training({2, 1, 1}, {}, picture_plan(true));
  EXPECT_THROW(training.train(0), InternalError);
}

class StatesInCheckpoints : public ::testing::Test {
 protected:
  StatesInCheckpoints() {
    if (runtime().rank() == 0) made_.emplace();
    folder_ = runtime().world().broadcast_text(made_ ? made_->path().string() : "");
  }
  ~StatesInCheckpoints() override { runtime().world().barrier().wait_host(); }

  std::vector<TensorSlice> slices_of(const PictureTraining& training, bool owned) {
    return checkpoint_slices(training.stage(), nullptr, owned);
  }
  Checkpoint write(const std::vector<TensorSlice>& owned) {
    CheckpointInfo info;
    info.step = ++written_;
    return Checkpoint::open(
        runtime().world(),
        write_checkpoint(runtime().world(), runtime().recorder(), folder_, info, owned));
  }
  // Changes what is owned of the first batch norm's state and returns how reading is refused.
  std::string refusal(const std::function<void(std::vector<TensorSlice>&)>& change) {
    PictureTraining training(grids().front());
    std::vector<TensorSlice> owned = slices_of(training, true);
    change(owned);
    const Checkpoint checkpoint = write(owned);
    const std::string message = message_of<CheckpointError>([&] {
      read_checkpoint(training.ctx(), checkpoint, training.stage(), slices_of(training, false));
    });
    const std::string start = checkpoint.path() + ": ";
    EXPECT_TRUE(message.starts_with(start)) << message;
    return message.substr(start.size());
  }

 private:
  std::optional<TemporaryFolder> made_;  // on rank 0
  std::string folder_;
  int written_ = 0;
};

// What one grid has written, another reads: also evaluation and export, without the optimizer.
TEST_F(StatesInCheckpoints, AreReadOnAnyGrid) {
  PictureTraining one({1, 1, 1});
  one.train(0);
  for (const GridShape& from : grids()) {
    SCOPED_TRACE(from.to_string());
    PictureTraining writer(from);
    writer.train(0);
    const Checkpoint checkpoint = write(slices_of(writer, true));
    std::size_t states = 0;
    for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
      if (!tensor.name.starts_with("state/")) continue;
      EXPECT_EQ(tensor.dtype, DType::kF32);
      ++states;
    }
    EXPECT_EQ(states, 5u);
    EXPECT_EQ(checkpoint.contents().find("state/stem.norm.running")->shape, Shape({2, 16}));
    for (const GridShape& to : grids()) {
      PictureTraining reader(to);
      read_checkpoint(reader.ctx(), checkpoint, reader.stage(), slices_of(reader, false));
      for (const auto& [name, values] : reader.states()) {
        EXPECT_LT(relative_error(values, one.states().at(name)), 1e-4) << name;
      }
      if (to == from) {
        EXPECT_EQ(reader.bits(), writer.bits());
        EXPECT_EQ(reader.evaluate(), writer.evaluate());
      }
      // A stage that only evaluates reads the same.
      parallel::StageOptions options;
      options.trains = false;
      options.seed = {};
      parallel::Stage stage(reader.ctx(), reader.grid(), picture_plan(), options);
      read_checkpoint(reader.ctx(), checkpoint, stage, checkpoint_slices(stage, nullptr, false));
      ASSERT_EQ(stage.states().states().size(), reader.stage().states().states().size());
      for (std::size_t i = 0; i < stage.states().states().size(); ++i) {
        EXPECT_EQ(bits_of(stage.states().states()[i]->value()),
                  bits_of(reader.stage().states().states()[i]->value()));
      }
    }
  }
}

TEST_F(StatesInCheckpoints, WithoutAStateTheyAreRefused) {
  // bad input: a checkpoint without a state that the model has (running moments of a batch norm) |
  // holds no tensor state/stem.norm.running; the model wants one of shape (2, 16) | 4
  EXPECT_EQ(refusal([](std::vector<TensorSlice>& owned) {
              std::erase_if(owned, [](const TensorSlice& slice) {
                return slice.name == "state/stem.norm.running";
              });
            }),
            "holds no tensor state/stem.norm.running; the model wants one of shape (2, 16)");
}

TEST_F(StatesInCheckpoints, WithAStateOfAnotherShapeTheyAreRefused) {
  // bad input: a checkpoint with a state of another shape | tensor state/stem.norm.running is fp32
  // (4, 8), the model wants fp32 (2, 16) | 4
  EXPECT_EQ(refusal([](std::vector<TensorSlice>& owned) {
              for (TensorSlice& slice : owned) {
                if (slice.name != "state/stem.norm.running") continue;
                slice = TensorSlice::whole(slice.name, slice.local.reshape({4, 8}));
              }
            }),
            "tensor state/stem.norm.running is fp32 (4, 8), the model wants fp32 (2, 16)");
}

}  // namespace
}  // namespace trireme::testing
