// A model run block by block, each with a tape of its own, against one tape over all of it.
#include "trireme/nn/block_run.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>

#include <gtest/gtest.h>

#include "trireme/parallel/stage.h"

#include "models/gpt/gpt.h"
#include "support/batches.h"
#include "support/mpi_test.h"
#include "support/ops_testing.h"

namespace trireme::testing {
namespace {

using Keep = nn::BlockRun::Keep;

struct Contributions : nn::GradientListener {
  void contributed(const nn::Parameter& parameter) override { names.push_back(parameter.name()); }
  std::vector<std::string> names;
};

// What a forward and a backward leave behind.
struct Pass {
  double loss = 0.0;
  std::string gradients;  // the bytes of all groups
  std::vector<std::string> contributions;
  std::size_t peak = 0;  // bytes of all tensors

  bool operator==(const Pass& other) const {
    return loss == other.loss && gradients == other.gradients &&
           contributions == other.contributions;
  }
};

models::GptConfig model(const char* preset = "test-gpt") {
  models::GptConfig config = models::gpt_preset(preset);
  config.layers = 3;
  config.dropout = 0.1f;
  return config;
}

// A model on this rank alone, with gradients of zero.
struct Whole {
  explicit Whole(bool training = true, const char* preset = "test-gpt")
      : batch(make_batches(ctx, {.micro = 2}, 0, 1, training)[0]),
        stage(ctx, grid, models::gpt_plan(model(preset)), {}) {
    ctx.step_state->random_key = 17;
    for (const nn::FlatGroup* group : stage.groups()) {
      std::ranges::fill(group->gradients().span<float>(), 0.0f);
    }
  }

  Pass result() const {
    Pass pass{batch.loss_sum.data<double>()[0],
              {},
              contributions.names,
              ctx.allocator->stats().total_peak};
    for (const nn::FlatGroup* group : stage.groups()) pass.gradients += bits_of(group->gradients());
    return pass;
  }

  ops::Context ctx = ops::make_cpu_context(1);
  ProcessGrid grid{runtime(), {1, 1, 1}, {runtime().rank()}};
  nn::MicroBatch batch;
  parallel::Stage stage;
  Contributions contributions;
};

Pass on_one_tape(const char* preset = "test-gpt") {
  Whole whole(true, preset);
  nn::Tape tape(whole.ctx, true, &whole.contributions);
  nn::Values x;
  for (const auto& block : whole.stage.blocks(0))
    x = block->forward(tape, whole.batch, std::move(x));
  tape.backward({}, {});
  return whole.result();
}

enum class Weights { kAtOnce, kLater };

// `each`: the number of blocks in a run. `between` runs between forward and backward.
Pass in_runs(std::size_t each, Weights weights, Keep keep = Keep::kTape,
             const std::function<void(Whole&)>& between = {}, const char* preset = "test-gpt",
             const std::function<void(Whole&)>& before_weights = {}) {
  Whole whole(true, preset);
  const nn::BlockSpan blocks = whole.stage.blocks(0);
  std::deque<nn::BlockRun> runs;
  Tensors x;
  for (std::size_t begin = 0; begin < blocks.size(); begin += each) {
    runs.emplace_back(whole.ctx, blocks.subspan(begin, std::min(each, blocks.size() - begin)),
                      whole.batch, keep, &whole.contributions);
    x = runs.back().forward(std::move(x));
  }
  EXPECT_TRUE(x.empty());
  if (between) between(whole);
  Tensors dy;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    dy = run->backward(std::move(dy), weights == Weights::kLater);
  }
  EXPECT_TRUE(dy.empty());
  if (weights == Weights::kAtOnce) return whole.result();
  // The block that ends in the loss defers nothing: the matrix of the logits, of which a tied one
  // has another use, and the norm before it.
  std::vector<std::string> of_loss = {model(preset).tied ? "embedding.weight" : "head.weight",
                                      "norm.weight"};
  if (model(preset).norm == nn::NormKind::kLayer) of_loss.emplace_back("norm.bias");
  EXPECT_EQ(whole.contributions.names, of_loss);
  if (before_weights) before_weights(whole);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) run->backward_weights();
  return whole.result();
}

TEST(BlockRun, GivesTheBitsAndTheOrderOfOneTape) {
  const Pass expected = on_one_tape();
  EXPECT_GT(expected.loss, 0.0);
  for (const std::size_t each : {1, 2, 5}) EXPECT_EQ(in_runs(each, Weights::kAtOnce), expected);
}

TEST(BlockRun, DefersAllWeightGradientsButTheLosses) {
  const Pass expected = on_one_tape();
  for (const std::size_t each : {1, 2, 5}) EXPECT_EQ(in_runs(each, Weights::kLater), expected);
}

TEST(BlockRun, RecomputesTheSameBits) {
  const Pass expected = on_one_tape();
  for (const std::size_t each : {1, 2, 5}) {
    EXPECT_EQ(in_runs(each, Weights::kAtOnce, Keep::kInput), expected);
    EXPECT_EQ(in_runs(each, Weights::kLater, Keep::kInput), expected);
  }
  // Another random key the second time is another dropout, and would be noticed.
  const auto other_key = [](Whole& whole) { ++whole.ctx.step_state->random_key; };
  EXPECT_NE(in_runs(2, Weights::kAtOnce, Keep::kInput, other_key).gradients, expected.gradients);
}

// It keeps nothing of the embedding, and only the input of every other block.
TEST(BlockRun, ThatRecomputesKeepsItsInputAlone) {
  const auto live = [](const Whole& whole) { return whole.ctx.allocator->stats().total_live; };
  const Whole fresh;
  const std::size_t before = live(fresh);
  const std::size_t input = static_cast<std::size_t>(fresh.batch.field(nn::kTokens).elements()) *
                            static_cast<std::size_t>(model().width) * sizeof(float);
  in_runs(1, Weights::kAtOnce, Keep::kInput,
          [&](Whole& whole) { EXPECT_EQ(live(whole), before + 4 * input); });
  in_runs(2, Weights::kAtOnce, Keep::kInput,
          [&](Whole& whole) { EXPECT_EQ(live(whole), before + 2 * input); });
  EXPECT_LT(in_runs(1, Weights::kAtOnce, Keep::kInput).peak,
            in_runs(1, Weights::kAtOnce, Keep::kTape).peak);
}

TEST(BlockRun, SelectiveRecomputationHasTheSameBits) {
  for (const char* preset : {"test-gpt", "test-llama"}) {
    const Pass expected = on_one_tape(preset);
    for (const std::size_t each : {1, 2, 5}) {
      EXPECT_EQ(in_runs(each, Weights::kAtOnce, Keep::kSelective, {}, preset), expected);
      EXPECT_EQ(in_runs(each, Weights::kLater, Keep::kSelective, {}, preset), expected);
    }
  }
}

// Deferred weight gradients keep what they keep without recomputation, and need no weights.
TEST(BlockRun, SelectiveRecomputationKeepsNoNormsAndActivations) {
  for (const char* preset : {"test-gpt", "test-llama"}) {
    const models::GptConfig config = model(preset);
    std::size_t kept = 0, remade = 0, kept_later = 0, remade_later = 0;
    const auto live = [](std::size_t& bytes) {
      return [&bytes](Whole& whole) { bytes = whole.ctx.allocator->stats().total_live; };
    };
    const auto live_without_weights = [&](Whole& whole) {
      live(remade_later)(whole);
      for (const nn::FlatGroup* group : whole.stage.groups()) {
        std::ranges::fill(group->master().span<float>(), NAN);
      }
    };
    const Pass expected =
        in_runs(1, Weights::kLater, Keep::kTape, live(kept), preset, live(kept_later));
    EXPECT_EQ(
        in_runs(1, Weights::kLater, Keep::kSelective, live(remade), preset, live_without_weights),
        expected);
    const Whole fresh(true, preset);
    const auto rows = static_cast<std::size_t>(fresh.batch.field(nn::kTokens).elements());
    const auto per_row = static_cast<std::size_t>(3 * (2 * config.width + config.hidden) +
                                                  config.width);  // the head's norm
    EXPECT_EQ(kept - remade, rows * per_row * sizeof(float)) << preset;
    EXPECT_EQ(remade_later, kept_later) << preset;
    EXPECT_LT(in_runs(1, Weights::kAtOnce, Keep::kSelective, {}, preset).peak,
              in_runs(1, Weights::kAtOnce, Keep::kTape, {}, preset).peak);
  }
}

TEST(BlockRun, HoldsNoMoreThanOneTape) {
  EXPECT_LE(in_runs(1, Weights::kAtOnce).peak, on_one_tape().peak);
}

TEST(BlockRun, InTrainingTheLossIsMadeInTheBackwardAndOtherwiseInTheForward) {
  const auto forward = [](Whole& whole, Keep keep) {
    std::deque<nn::BlockRun> runs;
    Tensors x;
    for (std::size_t i = 0; i < whole.stage.blocks(0).size(); ++i) {
      runs.emplace_back(whole.ctx, whole.stage.blocks(0).subspan(i, 1), whole.batch, keep);
      x = runs.back().forward(std::move(x));
    }
    return runs;
  };
  Whole evaluated(false), trained(false);
  const auto live = [](const Whole& whole) { return whole.ctx.allocator->stats().total_live; };
  const std::size_t before = live(evaluated);
  forward(evaluated, Keep::kNothing);
  EXPECT_EQ(live(evaluated), before);
  const double loss = evaluated.batch.loss_sum.data<double>()[0];
  EXPECT_GT(loss, 0.0);

  auto runs = forward(trained, Keep::kTape);
  EXPECT_GT(live(trained), before);
  EXPECT_EQ(trained.batch.loss_sum.data<double>()[0], 0.0);
  Tensors dy;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) dy = run->backward(std::move(dy));
  EXPECT_EQ(trained.batch.loss_sum.data<double>()[0], loss);
  EXPECT_EQ(live(trained), before);
}

}  // namespace
}  // namespace trireme::testing
