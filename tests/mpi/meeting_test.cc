// Islands beside a plain reference: every island trained alone by this rank, the outer steps in
// double.
#include "trireme/parallel/meeting.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/philox.h"
#include "trireme/comm/islands.h"
#include "trireme/ops/elementwise.h"
#include "trireme/tensor/split_float.h"

#include "support/equality.h"
#include "support/mpi_test.h"
#include "support/picture_model.h"
#include "support/plain_quantize.h"
#include "support/small_model.h"

namespace trireme::testing {
namespace {

constexpr int kMicroBatches = 4;  // of an island's step
constexpr float kRate = 0.02f;

struct IslandsCase {
  int islands = 2;
  GridShape grid;  // of each
  int stage = 0;   // of shards
  parallel::MeetingRule rule;
  int every = 3, delay = 0, steps = 6;

  std::string to_string() const {
    return fmt::format(
        "{} islands of {}, stage {}, every {} steps, {} fragments, delay {}, rate {}, {} bits",
        islands, grid.to_string(), stage, every, rule.fragments, delay, rule.rate, rule.bits);
  }
  // Whether the fragment's meeting starts after this step. One that would not end is left out.
  bool starts(int fragment, int step) const {
    const int since = step - fragment * every / rule.fragments;
    return since > 0 && since % every == 0 && step + delay <= steps;
  }
  float mix() const { return delay > 0 ? 0.5f : 0.0f; }
  bool ends(int fragment, int step) const { return starts(fragment, step - delay); }
};

models::GptConfig model() {
  models::GptConfig small = small_gpt();
  small.vocabulary = BatchShape().vocabulary;
  return small;
}

parallel::StepOptions options_of(const IslandsCase& test) {
  parallel::StepOptions options;
  options.stage.seed = 11;
  options.stage.whole_weights = test.stage < 3;
  options.stage.whole_gradients = test.stage < 2;
  options.stage.separates_uses = true;
  options.work = parallel::WorkSplit::even(kMicroBatches, test.grid.extent(kDataAxes),
                                           {.runs = kMicroBatches, .reduces_each = test.stage > 1});
  options.optimizer = optimizer_of_rule("plain sgd");
  return options;
}

parallel::StepResult train(ops::Context& ctx, parallel::TrainerStep& trainer, int island,
                           int step) {
  const parallel::Stage& stage = trainer.stage();
  std::vector<nn::MicroBatch> mine;
  const int first = (100 * island + step) * kMicroBatches;
  for (const parallel::Micro& one : trainer.options().work.of(stage.grid().index(kDataAxes))) {
    mine.push_back(make_batches(ctx, {}, first + one.number, 1, true).front());
  }
  return trainer.train(mine, step, kRate, philox_key(3, fmt::format("{}", step)));
}

// Collective over the ranks in `order`.
LocalParts with_meetings(const IslandsCase& test, const std::vector<int>& order) {
  ops::Context ctx = ops::make_cpu_context(1);
  const Islands islands(runtime(), test.grid, test.islands, order);
  const ProcessGrid grid(runtime(), test.grid, islands.ranks());
  parallel::TrainerStep trainer(ctx, grid, models::gpt_plan(model()), options_of(test));
  parallel::Meeting meeting(ctx, trainer, islands.across(), test.rule);
  std::vector<std::int64_t> targets(static_cast<std::size_t>(test.rule.fragments));
  for (int step = 1; step <= test.steps; ++step) {
    const std::int64_t seen = train(ctx, trainer, islands.index(), step).targets;
    for (int f = 0; f < test.rule.fragments; ++f) {
      std::int64_t& of_fragment = targets[static_cast<std::size_t>(f)];
      of_fragment += seen;
      if (test.starts(f, step)) {
        EXPECT_TRUE(meeting.start(f, of_fragment));
        of_fragment = 0;
      }
      if (test.ends(f, step)) {
        EXPECT_GT(meeting.targets(f), 0.0);
        meeting.finish(f, test.mix());
      }
    }
  }
  return weights_of(ctx, trainer.stage());
}

// All islands on this rank, one after the other.
class Reference {
 public:
  explicit Reference(const IslandsCase& test, bool feedback = true)
      : test_(test), feedback_(feedback) {
    const parallel::StepOptions options = [&] {
      IslandsCase alone = test;
      alone.grid = {};
      alone.stage = 0;
      return options_of(alone);
    }();
    for (int i = 0; i < test.islands; ++i) {
      trainers_.push_back(std::make_unique<parallel::TrainerStep>(
          contexts_.emplace_back(std::make_unique<ops::Context>(ops::make_cpu_context(1)))
              .
              operator*(),
          alone_, models::gpt_plan(model()), options));
    }
    for (const nn::FlatGroup* group : groups_of(0)) {
      const auto values = group->values().span<float>();
      outer_.emplace_back(values.begin(), values.end());
      momentum_.emplace_back(values.size(), 0.0);
      kept_of_sum_.emplace_back(values.size(), 0.0);
    }
    kept_.assign(trainers_.size(), kept_of_sum_);
    sums_.resize(outer_.size());
    targets_.assign(static_cast<std::size_t>(test.rule.fragments),
                    std::vector<double>(trainers_.size()));
  }

  LocalParts weights(int island) const {
    const auto own = static_cast<std::size_t>(island);
    return weights_of(*contexts_[own], trainers_[own]->stage());
  }

  // Returns the weights of this island.
  LocalParts run(int island) {
    for (int step = 1; step <= test_.steps; ++step) {
      for (std::size_t i = 0; i < trainers_.size(); ++i) {
        const auto seen = train(*contexts_[i], *trainers_[i], static_cast<int>(i), step).targets;
        for (auto& of_fragment : targets_) of_fragment[i] += static_cast<double>(seen);
      }
      for (int f = 0; f < test_.rule.fragments; ++f) {
        if (test_.starts(f, step)) start(f);
        if (test_.ends(f, step)) finish(f);
      }
    }
    return weights(island);
  }

 private:
  std::vector<nn::FlatGroup*> groups_of(std::size_t island) const {
    return trainers_[island]->stage().trained_groups();
  }

  // The fragment of a group: the tied matrix is the embedding's, the final norm the last block's.
  int fragment_of(const std::string& name) const {
    constexpr int kBlocks = 6;
    int block = name.starts_with("head") || name.starts_with("final") ? kBlocks - 1 : 0;
    if (const auto at = name.find("blocks."); at == 0) block = 1 + (name[7] - '0');
    return block * test_.rule.fragments / kBlocks;
  }

  void start(int fragment) {
    auto& weights = targets_[static_cast<std::size_t>(fragment)];
    double all = 0.0;
    for (const double one : weights) all += one;
    for (std::size_t g = 0; g < outer_.size(); ++g) {
      if (fragment_of(groups_of(0)[g]->name()) != fragment) continue;
      sums_[g].assign(outer_[g].size(), 0.0);
      for (std::size_t i = 0; i < trainers_.size(); ++i) {
        const auto values = groups_of(i)[g]->values().span<float>();
        std::vector<double> term(values.size());
        for (std::size_t at = 0; at < values.size(); ++at) {
          term[at] = weights[i] / all * (outer_[g][at] - double{values[at]});
        }
        quantize(g, term, kept_[i][g]);
        for (std::size_t at = 0; at < values.size(); ++at) sums_[g][at] += term[at];
      }
      quantize(g, sums_[g], kept_of_sum_[g]);
    }
    std::ranges::fill(weights, 0.0);
  }

  // v = the values of its codes, and kept = what these lose.
  void quantize(std::size_t group, std::vector<double>& v, std::vector<double>& kept) const {
    if (test_.rule.bits == 32) return;
    quantize_group(*groups_of(0)[group], test_.rule.bits, v, kept);
    if (!feedback_) std::ranges::fill(kept, 0.0);
  }

  void finish(int fragment) {
    const parallel::MeetingRule& rule = test_.rule;
    for (std::size_t g = 0; g < outer_.size(); ++g) {
      if (fragment_of(groups_of(0)[g]->name()) != fragment) continue;
      for (std::size_t at = 0; at < outer_[g].size(); ++at) {
        double& m = momentum_[g][at];
        m = double{rule.momentum} * m + sums_[g][at];
        outer_[g][at] -= double{rule.rate} * (sums_[g][at] + double{rule.momentum} * m);
      }
      for (std::size_t i = 0; i < trainers_.size(); ++i) {
        const auto values = groups_of(i)[g]->values().span<float>();
        for (std::size_t at = 0; at < values.size(); ++at) {
          const double mixed = double{test_.mix()} * double{values[at]} +
                               (1.0 - double{test_.mix()}) * outer_[g][at];
          values[at] = static_cast<float>(mixed);
        }
      }
    }
    for (const auto& trainer : trainers_) trainer->values_changed();
  }

  IslandsCase test_;
  bool feedback_;
  ProcessGrid alone_{runtime(), {}, {runtime().rank()}};
  std::vector<std::unique_ptr<ops::Context>> contexts_;
  std::vector<std::unique_ptr<parallel::TrainerStep>> trainers_;
  std::vector<std::vector<double>> outer_, momentum_, sums_, kept_of_sum_;  // by group
  std::vector<std::vector<std::vector<double>>> kept_;                      // by island and group
  std::vector<std::vector<double>> targets_;  // by fragment and island
};

std::vector<parallel::MeetingRule> rules() {
  return {{}, {.rate = 0.7f, .momentum = 0.9f}, {.rate = 0.7f, .momentum = 0.9f, .fragments = 3}};
}

int delay_of(const parallel::MeetingRule& rule) {
  return rule.fragments > 1 ? 1 : 0;
}

// The cases of all ranks divided into so many islands.
std::vector<IslandsCase> cases(int islands) {
  const int each = runtime().size() / islands;
  std::vector<IslandsCase> all;
  const auto add = [&](const GridShape& grid, int stage) {
    const parallel::MeetingRule rule = rules()[all.size() % rules().size()];
    all.push_back(
        {.islands = islands, .grid = grid, .stage = stage, .rule = rule, .delay = delay_of(rule)});
  };
  GridShape shards;
  shards[Axis::kShard] = each;
  if (each == 1) {
    for (std::size_t i = 0; i < rules().size(); ++i) add({}, 0);
  } else if (each < 4) {
    for (int round = 0; round < 2; ++round) {
      add({each, 1, 1}, 0);
      add({1, each, 1}, 0);
    }
    add({1, 1, each}, 0);
    add(shards, 1);
    add(shards, 3);
    add(shards, 1);
  } else {
    GridShape both = shards;
    both.set_extent(kDataAxes, 1);
    both[Axis::kReplicate] = 2;
    both[Axis::kShard] = each / 2;
    add(both, 2);
    add({each / 2, 2, 1}, 0);
    add({each / 2, 1, 2}, 0);
    add(both, 3);
  }
  return all;
}

// This rank's.
int island_of(const IslandsCase& test) {
  return runtime().rank() / test.grid.ranks();
}

TEST(Meeting, FollowsTheReference) {
  for (const int islands : {2, 4}) {
    if (runtime().size() % islands != 0) continue;
    for (const IslandsCase& test : cases(islands)) {
      if (test.rule.bits < 32) continue;  // the reference has all of them
      SCOPED_TRACE(test.to_string());
      const LocalParts reference = Reference(test).run(island_of(test));
      const LocalParts here = with_meetings(test, {});
      for (const Deviation& one : compare(reference, here, runtime().world())) {
        EXPECT_TRUE(one.covered) << one.name;
        if (zero_in_exact_arithmetic(one.name, model())) continue;
        EXPECT_LT(one.relative, 2e-5) << one.name;
      }
    }
  }
}

// The share of the weights whose change in training is not that of the reference, but for rounding
// in fp32: to 1/1000 of the largest change in the tensor.
double share_of_others(const IslandsCase& test, const LocalParts& here, bool feedback) {
  Reference reference(test, feedback);
  const LocalParts before = reference.weights(island_of(test));
  const LocalParts expected = reference.run(island_of(test));
  double others = 0.0, all = 0.0;
  for (const auto& [name, part] : expected) {
    const auto& first = before.at(name).values;
    double most = 0.0;
    for (std::size_t i = 0; i < first.size(); ++i) {
      most = std::max(most, std::abs(double{part.values[i]} - double{first[i]}));
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      const double other = std::abs(double{here.at(name).values[i]} - double{part.values[i]});
      others += other > most / 1000.0 ? 1.0 : 0.0;
      all += 1.0;
    }
  }
  return others / all;
}

// A code where a number lies between two of them may be the other one in fp32.
TEST(Meeting, FollowsTheReferenceInFewBits) {
  if (runtime().size() == 1) GTEST_SKIP() << "two islands";
  for (const parallel::MeetingRule& rule :
       {parallel::MeetingRule{.rate = 0.7f, .momentum = 0.9f, .bits = 8},
        parallel::MeetingRule{.fragments = 3, .bits = 4}}) {
    IslandsCase test;
    test.islands = runtime().size();
    test.rule = rule;
    test.delay = delay_of(rule);
    test.steps = 10;
    SCOPED_TRACE(test.to_string());
    const LocalParts here = with_meetings(test, {});
    EXPECT_LT(share_of_others(test, here, /*feedback=*/true), 0.03);
    EXPECT_GT(share_of_others(test, here, /*feedback=*/false), 0.2);
  }
}

// The bits of an island do not depend on its grid.
TEST(Meeting, HasTheBitsOfIslandsOfOneRank) {
  if (runtime().size() < 4) GTEST_SKIP() << "islands of several ranks";
  std::map<std::string, std::vector<LocalParts>> known;
  for (const IslandsCase& test : cases(2)) {
    if (test.grid[Axis::kTensor] > 1) continue;
    SCOPED_TRACE(test.to_string());
    IslandsCase alone = test;
    alone.grid = {};
    alone.stage = 0;
    std::vector<LocalParts>& reference = known[alone.to_string()];
    for (int island = 0; reference.size() < 2; ++island) {
      // Its bits are others; it is for the shapes.
      LocalParts& made = reference.emplace_back(Reference(alone).run(island));
      if (runtime().rank() < 2) {
        const LocalParts bits = with_meetings(alone, {0, 1});
        if (runtime().rank() == island) made = bits;
      }
      for (auto& [name, part] : made) {
        runtime()
            .world()
            .broadcast(Stream(), Tensor::wrap(std::span(part.values)), island)
            .wait_host();
      }
    }
    const LocalParts& mine = reference[static_cast<std::size_t>(island_of(test))];
    for (const Deviation& one : compare(mine, with_meetings(test, {}), runtime().world())) {
      EXPECT_TRUE(one.covered) << one.name;
      EXPECT_EQ(one.absolute, 0.0) << one.name;
    }
  }
}

// An island whose weights are not finite does not count, and goes on with what the others know.
TEST(Meeting, LeavesOutWhatIsNotFinite) {
  if (runtime().size() < 2) GTEST_SKIP() << "two islands";
  IslandsCase test;
  test.islands = runtime().size();
  ops::Context ctx = ops::make_cpu_context(1);
  const Islands islands(runtime(), test.grid, test.islands);
  const ProcessGrid grid(runtime(), test.grid, islands.ranks());
  parallel::TrainerStep trainer(ctx, grid, models::gpt_plan(model()), options_of(test));
  parallel::Meeting meeting(ctx, trainer, islands.across(), {});
  const auto values = [&] { return trainer.stage().groups().front()->values().span<float>(); };
  const float before = values()[5];
  const bool good = islands.index() != 0;
  for (float& value : values()) value += 1.0f;
  if (!good) values()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(meeting.start(0, 10), good);
  EXPECT_EQ(meeting.targets(0), 10.0 * (runtime().size() - 1));
  meeting.finish(0);
  EXPECT_FLOAT_EQ(values()[5], before + 1.0f);
  // Where none counts the outer weights stay.
  values()[7] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(meeting.start(0, 10));
  EXPECT_EQ(meeting.targets(0), 0.0);
  meeting.finish(0);
  EXPECT_FLOAT_EQ(values()[5], before + 1.0f);
}

// What is learned is read from both halves of a parameter's values, and what is met for goes to
// both.
TEST(Meeting, KnowsSplitMasters) {
  IslandsCase test;
  test.islands = runtime().size();
  ops::Context ctx = ops::make_cpu_context(1);
  const Islands islands(runtime(), test.grid, test.islands);
  const ProcessGrid grid(runtime(), test.grid, islands.ranks());
  parallel::StepOptions options = options_of(test);
  options.stage.compute = DType::kBF16;
  options.stage.split_masters = true;
  parallel::TrainerStep trainer(ctx, grid, models::gpt_plan(model()), options);
  parallel::Meeting meeting(ctx, trainer, islands.across(), {});
  using Values = std::vector<std::vector<float>>;
  const auto copy_of = [](const Tensor& tensor) {
    const auto span = tensor.span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  const auto values = [&] {
    Values all;
    for (const parallel::Meeting::Outer& one : meeting.outer()) {
      all.push_back(copy_of(one.group->read_values(ctx)));
    }
    return all;
  };
  const auto outer = [&] {
    Values all;
    for (const parallel::Meeting::Outer& one : meeting.outer()) all.push_back(copy_of(one.weights));
    return all;
  };
  EXPECT_EQ(outer(), values());
  const Values initial = values();
  train(ctx, trainer, islands.index(), 1);
  const Values learned = values();
  EXPECT_NE(learned, initial);
  EXPECT_TRUE(meeting.start(0, 10));
  meeting.finish(0);
  EXPECT_NE(outer(), initial);
  EXPECT_EQ(values(), outer());
  train(ctx, trainer, islands.index(), 2);
  Values expected = values();
  EXPECT_TRUE(meeting.start(0, 10));
  meeting.finish(0, 0.5f);
  const Values met = outer();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t k = 0; k < expected[i].size(); ++k) {
      expected[i][k] = 0.5f * expected[i][k] + 0.5f * met[i][k];
    }
  }
  EXPECT_EQ(values(), expected);
  meeting.exchange();
  EXPECT_EQ(values(), met);
  EXPECT_EQ(outer(), expected);
  meeting.take_outer();
  EXPECT_EQ(values(), expected);
  for (const parallel::Meeting::Outer& one : meeting.outer()) {
    const std::vector<float> all = copy_of(one.group->read_values(ctx));
    const auto weights = one.group->weight_shard().span<BFloat16>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(weights[i].bits, SplitFloat(all[i]).high);
    }
  }
}

TEST(Meeting, TakesTheMeanOfTheStates) {
  const int size = runtime().size();
  ops::Context ctx = ops::make_cpu_context(1);
  const Islands islands(runtime(), {}, size);
  const ProcessGrid grid(runtime(), {}, islands.ranks());
  parallel::TrainerStep trainer(ctx, grid, picture_plan(), {});
  parallel::Meeting meeting(ctx, trainer, islands.across(), {});
  const int mine = islands.index() + 1;
  for (const nn::State* state : trainer.stage().states().states()) {
    ops::fill(ctx, state->value(), static_cast<float>(mine));
  }
  EXPECT_TRUE(meeting.start(0, mine));
  EXPECT_EQ(meeting.targets(0), size * (size + 1) / 2.0);
  meeting.finish(0);
  const float mean = static_cast<float>(2 * size + 1) / 3.0f;  // of i + 1 with weight i + 1
  ASSERT_FALSE(trainer.stage().states().empty());
  for (const nn::State* state : trainer.stage().states().states()) {
    for (const float value : state->value().span<float>()) EXPECT_FLOAT_EQ(value, mean);
  }
}

}  // namespace
}  // namespace trireme::testing
