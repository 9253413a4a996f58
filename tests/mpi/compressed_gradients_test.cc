// Gradients that travel between replicas in few bits, with error feedback: beside a plain reference
// in double, and the same on all grids.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/philox.h"
#include "trireme/ops/elementwise.h"
#include "trireme/parallel/copy_check.h"

#include "support/equality.h"
#include "support/mpi_test.h"
#include "support/plain_quantize.h"
#include "support/small_model.h"

namespace trireme::testing {
namespace {

constexpr float kRate = 0.05f;
constexpr int kSteps = 4;
using Doubles = std::vector<double>;

// Norms and learned positions are on all tensor ranks, and so is the only key and value head. None
// of its parameters ends where a block of 256 elements does.
models::GptConfig model() {
  models::GptConfig small = small_gpt();
  small.layers = 2;
  small.width = 36;
  small.hidden = 100;
  small.heads = 2;
  small.kv_heads = 1;
  small.vocabulary = BatchShape().vocabulary;
  return small;
}

struct Setting {
  GridShape grid;
  int bits = 8;
  int micro_batches = 4;
  parallel::BatchRuns runs = {};
  ops::LossScaling scaling = ops::LossScaling::fixed(1.0f);
  bool sequence_parallel = false;
  std::vector<int> order = {};  // the ranks of the grid; empty: all

  std::string to_string() const {
    return fmt::format("grid {}, {} shards, {} bits, {} runs", grid.to_string(), grid[Axis::kShard],
                       bits, runs.runs);
  }
};

GridShape sharded(int data, int shards, int pipeline = 1, int tensor = 1) {
  GridShape shape(data / shards, pipeline, tensor);
  shape[Axis::kShard] = shards;
  return shape;
}

// Collective over the grid.
class Training {
 public:
  explicit Training(const Setting& setting)
      : setting_(setting),
        grid_(runtime(), setting.grid, setting.order),
        step_(ctx_, grid_, models::gpt_plan(model()), options_of(setting)) {}

  parallel::StepResult train(int step) { return step_.train(mine(step), step, kRate, key(step)); }
  // The sum over the replicas without codes.
  LocalParts exact_gradients(int step) {
    Setting plain = setting_;
    plain.bits = 32;
    Training other(plain);
    ops::write_step_inputs(other.ctx_, {.step = step, .random_key = key(step)});
    other.step_.accumulate(other.mine(step));
    return gradients_of(other.ctx_, other.step_.stage());
  }
  LocalParts weights() { return weights_of(ctx_, step_.stage()); }
  LocalParts gradients() { return gradients_of(ctx_, step_.stage()); }
  LocalParts kept() {
    step_.gather_kept();
    return gradients();
  }
  void check_copies() {
    EXPECT_NO_THROW(parallel::check_copies(ctx_, step_.stage(), step_.optimizer(), kSteps));
  }

  ops::Context& ctx() { return ctx_; }
  parallel::TrainerStep& step() { return step_; }
  std::vector<nn::MicroBatch> mine(int step) {
    std::vector<nn::MicroBatch> mine;
    const int first = step * setting_.micro_batches;
    for (const parallel::Micro& one : step_.options().work.of(grid_.index(kDataAxes))) {
      mine.push_back(make_batches(ctx_, {}, first + one.number, 1, true).front());
    }
    return mine;
  }

 private:
  static std::uint64_t key(int step) { return philox_key(3, std::to_string(step)); }
  static parallel::StepOptions options_of(const Setting& setting) {
    parallel::StepOptions options;
    options.stage.seed = 11;
    options.stage.sequence_parallel = setting.sequence_parallel;
    options.work = parallel::WorkSplit::even(setting.micro_batches, setting.grid.extent(kDataAxes),
                                             setting.runs);
    options.stage.separates_uses = options.work.keeps_runs();
    options.optimizer = optimizer_of_rule("plain sgd");
    options.reduce_bits = setting.bits;
    options.loss_scaling = setting.scaling;
    return options;
  }

  Setting setting_;
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid grid_;
  parallel::TrainerStep step_;
};

LocalParts trained(const Setting& setting, int steps = kSteps) {
  Training training(setting);
  for (int step = 1; step <= steps; ++step) training.train(step);
  return training.weights();
}

void expect_same_bits(const LocalParts& reference, const LocalParts& here) {
  for (const Deviation& one : compare(reference, here, runtime().world())) {
    EXPECT_TRUE(one.covered) << one.name;
    EXPECT_EQ(one.absolute, 0.0) << one.name;
  }
}

double largest(const LocalParts& parts) {
  double most = 0.0;
  for (const auto& [name, part] : parts) {
    for (const float value : part.values) most = std::max(most, std::abs(double{value}));
  }
  return runtime().world().all_reduce_host(most, ReduceOp::kMax);
}

// All replicas on this rank, with codes of 8 bits.
class Reference {
 public:
  Reference(int replicas, bool feedback)
      : feedback_(feedback), kept_(static_cast<std::size_t>(replicas)), training_(alone()) {
    for (const nn::FlatGroup* group : groups()) {
      const auto values = group->values().span<float>();
      weights_.emplace_back(values.begin(), values.end());
      for (std::vector<Doubles>& one : kept_) one.emplace_back(values.size(), 0.0);
      kept_of_sum_.emplace_back(values.size(), 0.0);
    }
  }

  std::vector<Doubles> run() {
    for (int step = 1; step <= kSteps; ++step) take_step(step);
    return weights_;
  }
  // For the reference of others, and for what weights were.
  Training& training() { return training_; }
  std::vector<nn::FlatGroup*> groups() { return training_.step().stage().trained_groups(); }

 private:
  static Setting alone() {
    return {.grid = {}, .bits = 32, .micro_batches = 1, .order = {runtime().rank()}};
  }

  void quantize(const nn::FlatGroup& group, Doubles& v, Doubles& kept) const {
    quantize_group(group, 8, v, kept);
    if (!feedback_) std::ranges::fill(kept, 0.0);
  }

  void take_step(int step) {
    std::vector<Doubles> sums;
    for (const Doubles& weights : weights_) sums.emplace_back(weights.size(), 0.0);
    std::int64_t targets = 0;
    for (std::size_t replica = 0; replica < kept_.size(); ++replica) {
      const int number = step * static_cast<int>(kept_.size()) + static_cast<int>(replica);
      const auto batch = make_batches(training_.ctx(), {}, number, 1, true);
      targets += training_.step().accumulate(batch).targets;
      for (std::size_t g = 0; g < sums.size(); ++g) {
        const auto gradient = groups()[g]->gradients().span<float>();
        Doubles term(gradient.begin(), gradient.end());
        quantize(*groups()[g], term, kept_[replica][g]);
        for (std::size_t i = 0; i < term.size(); ++i) sums[g][i] += term[i];
      }
    }
    for (std::size_t g = 0; g < sums.size(); ++g) {
      quantize(*groups()[g], sums[g], kept_of_sum_[g]);
      const auto values = groups()[g]->values().span<float>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        weights_[g][i] -= double{kRate} * sums[g][i] / static_cast<double>(targets);
        values[i] = static_cast<float>(weights_[g][i]);
      }
    }
    training_.step().values_changed();
  }

  bool feedback_;
  std::vector<Doubles> weights_;            // by group
  std::vector<std::vector<Doubles>> kept_;  // by replica and group
  std::vector<Doubles> kept_of_sum_;
  Training training_;
};

// The share of all elements whose change in training is not that of the reference, but for rounding
// in fp32: to 1/1000 of the largest change in the group.
double share_of_others(bool feedback) {
  const int ranks = runtime().size();
  Reference reference(ranks, feedback);
  const std::vector<Doubles> expected = reference.run();
  Training training({.grid = {ranks, 1, 1}, .micro_batches = ranks});
  std::vector<Doubles> before;
  for (const nn::FlatGroup* group : training.step().stage().groups()) {
    const auto values = group->values().span<float>();
    before.emplace_back(values.begin(), values.end());
  }
  for (int step = 1; step <= kSteps; ++step) EXPECT_TRUE(training.train(step).finite);
  double others = 0.0, all = 0.0;
  for (std::size_t g = 0; g < before.size(); ++g) {
    const auto values = training.step().stage().groups()[g]->values().span<float>();
    double most = 0.0;
    for (std::size_t i = 0; i < before[g].size(); ++i) {
      most = std::max(most, std::abs(expected[g][i] - before[g][i]));
    }
    for (std::size_t i = 0; i < before[g].size(); ++i) {
      others += std::abs(double{values[i]} - expected[g][i]) > most / 1000.0 ? 1.0 : 0.0;
      all += 1.0;
    }
  }
  return others / all;
}

// A code where a number lies between two of them may be the other one in fp32.
TEST(CompressedGradients, FollowTheReference) {
  if (runtime().size() == 1) GTEST_SKIP() << "one replica sends nothing";
  EXPECT_LT(share_of_others(/*feedback=*/true), 0.02);
  EXPECT_GT(share_of_others(/*feedback=*/false), 0.2);
}

TEST(CompressedGradients, AreThoseOfOneReplicaThatSendsNothing) {
  if (runtime().size() != 1) GTEST_SKIP() << "one replica";
  Training training({.grid = {}});
  EXPECT_FALSE(training.step().compresses());
  expect_same_bits(trained({.grid = {}, .bits = 32}), trained({.grid = {}}));
}

// Neither shards, nor stages, nor who adds up what change a bit.
TEST(CompressedGradients, HaveTheSameBitsOnAllGrids) {
  if (runtime().size() != 4) GTEST_SKIP() << "four ranks";
  const int half = runtime().rank() / 2;
  Setting two{.grid = {2, 1, 1}, .runs = {.runs = 4}, .order = {2 * half, 2 * half + 1}};
  const LocalParts reference = trained(two);
  Setting of_two{.grid = {}, .runs = two.runs};
  for (const GridShape& grid : {GridShape(2, 2, 1), sharded(2, 2, 2)}) {
    of_two.grid = grid;
    SCOPED_TRACE(of_two.to_string());
    expect_same_bits(reference, trained(of_two));
  }
  for (const int runs : {0, 8}) {  // 8: in rounds
    Setting four{.grid = {4, 1, 1}, .micro_batches = 8, .runs = {runs, runs == 8}};
    const LocalParts of_copies = trained(four);
    for (const int shards : {2, 4}) {
      four.grid = sharded(4, shards);
      SCOPED_TRACE(four.to_string());
      expect_same_bits(of_copies, trained(four));
    }
  }
}

std::vector<Setting> settings() {
  switch (runtime().size()) {
    case 2:
      return {{.grid = {2, 1, 1}}, {.grid = sharded(2, 2)}};
    case 3:
      return {{.grid = {3, 1, 1}, .micro_batches = 5}};
    case 4:
      return {{.grid = {2, 2, 1}, .runs = {.runs = 4}},
              {.grid = {2, 1, 2}},
              {.grid = {2, 1, 2}, .sequence_parallel = true},
              {.grid = sharded(4, 2)},
              {.grid = sharded(2, 2, 1, 2), .sequence_parallel = true},
              {.grid = sharded(2, 2, 2, 1)}};
    default:
      return {};
  }
}

TEST(CompressedGradients, LeaveCopiesEqual) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.to_string());
    Training training(setting);
    for (int step = 1; step <= kSteps; ++step) training.train(step);
    training.check_copies();
  }
}

// What a step lacks is kept, whoever holds parts of a gradient, and goes on where others take it.
TEST(CompressedGradients, LoseNothing) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.to_string());
    Training training(setting);
    LocalParts sum = training.exact_gradients(1);
    const double most = largest(sum);
    training.train(1);
    const LocalParts taken = training.gradients(), kept = training.kept();
    EXPECT_GT(largest(kept), most / 2000.0);
    for (auto& [name, part] : sum) {
      for (std::size_t i = 0; i < part.values.size(); ++i) {
        part.values[i] -= taken.at(name).values[i] + kept.at(name).values[i];
      }
    }
    EXPECT_LT(largest(sum), most * 1e-6);
    Training other(setting);
    other.train(1);  // what it has kept is given up
    for (std::size_t g = 0; g < training.step().stage().groups().size(); ++g) {
      ops::cast(training.ctx(), training.step().stage().groups()[g]->gradient_shard(),
                other.step().stage().groups()[g]->gradient_shard());
    }
    other.step().take_kept();
    LocalParts again = other.kept();
    for (auto& [name, part] : again) {
      for (std::size_t i = 0; i < part.values.size(); ++i) {
        part.values[i] -= kept.at(name).values[i];
      }
    }
    EXPECT_LE(largest(again), runtime().size() == 3 ? most * 1e-9 : 0.0);
  }
}

// The scale is a power of two: no bit differs from that of a run without.
TEST(CompressedGradients, FollowTheLossScale) {
  for (Setting setting : settings()) {
    SCOPED_TRACE(setting.to_string());
    setting.scaling = {.initial = 64.0f, .interval = 2};
    Training scaled(setting);
    setting.scaling = ops::LossScaling::fixed(1.0f);
    Training plain(setting);
    for (int step = 1; step <= kSteps; ++step) {
      scaled.train(step);
      plain.train(step);
    }
    EXPECT_EQ(ops::read_step_state(scaled.ctx()).loss_scale, 256.0f);
    const LocalParts expected = plain.weights(), here = scaled.weights();
    for (const auto& [name, part] : expected) EXPECT_EQ(here.at(name).values, part.values) << name;
    const LocalParts kept = plain.kept(), of_scaled = scaled.kept();
    for (const auto& [name, part] : kept) EXPECT_EQ(of_scaled.at(name).values, part.values) << name;
  }
}

TEST(CompressedGradients, OfASkippedStepLeaveNothing) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.to_string());
    Training training(setting);
    training.train(1);
    const LocalParts before = training.weights();
    // The gradients of a last stage's rank are not finite.
    ops::StepState wrong = ops::read_step_state(training.ctx());
    wrong.loss_scale = std::numeric_limits<float>::infinity();
    if (runtime().rank() == runtime().size() - 1) ops::write_step_state(training.ctx(), wrong);
    EXPECT_FALSE(training.train(2).finite);
    ops::StepState now = ops::read_step_state(training.ctx());
    now.loss_scale = 1.0f;
    ops::write_step_state(training.ctx(), now);
    const LocalParts after = training.weights();
    for (const auto& [name, part] : before) EXPECT_EQ(after.at(name).values, part.values) << name;
    EXPECT_EQ(largest(training.kept()), 0.0);
    EXPECT_TRUE(training.train(3).finite);
    training.check_copies();
  }
}

// Gradients that nobody takes a step along change nothing of what is kept.
TEST(CompressedGradients, AreReportedWithoutEffect) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.to_string());
    Training one(setting), other(setting);
    for (int step = 1; step <= 2; ++step) {
      one.train(step);
      other.train(step);
      other.step().accumulate(other.mine(7));
    }
    const LocalParts expected = one.weights(), here = other.weights();
    for (const auto& [name, part] : expected) EXPECT_EQ(here.at(name).values, part.values) << name;
  }
}

}  // namespace
}  // namespace trireme::testing
