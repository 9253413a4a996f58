// What run.same_bits promises: with equal runs of micro-batches, neither replicas, stages,
// schedules, shards nor recomputation change a bit of gradients, weights, norms (by clipping) and
// losses. Ranks are simulated, so that many layouts take seconds; equality_test shows some of them
// over MPI.
#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/topology/simulated_ranks.h"

#include "support/simulated_training.h"
#include "support/whole_product.h"

namespace trireme {
namespace {

using testing::EqualityCase;
using testing::LocalParts;
using testing::Observed;

constexpr int kRuns = 8;
constexpr int kMicroBatches = 2 * kRuns;  // two in each run

EqualityCase case_of(const GridShape& grid, bool tied) {
  EqualityCase test;
  test.model = models::gpt_preset("test-gpt");  // 9 blocks, for 4 stages of 2 chunks
  test.model.tied = tied;
  test.model.dropout = 0.1f;
  test.batch.micro = 1;
  test.batch.length = 8;
  test.grid = grid;
  test.micro_batches = kMicroBatches;
  test.batch_runs.runs = kRuns;
  test.sequence_parallel = grid[Axis::kTensor] > 1;
  test.steps = 2;
  return test;
}

// The reference: one stage and one replica, plain 1F1B, whole copies.
class SameBits : public ::testing::Test {
 protected:
  const std::vector<Observed>& reference(int tensor, bool tied, const std::string& rule = "adamw") {
    const auto key = std::make_tuple(tensor, tied, rule);
    if (!references_.contains(key)) {
      EqualityCase test = case_of({1, 1, tensor}, tied);
      test.rule = rule;
      references_.emplace(key, testing::observe_simulated(test));
    }
    return references_.at(key);
  }

  void expect_bits_of_reference(const EqualityCase& test) {
    const int tensor = test.grid[Axis::kTensor];
    testing::expect_bits_of(reference(tensor, test.model.tied, test.rule), test);
  }

 private:
  std::map<std::tuple<int, bool, std::string>, std::vector<Observed>> references_;
};

// All layouts of up to 8 ranks with 1, 2, 4 or 8 replicas and 1, 2 or 4 stages.
std::vector<GridShape> layouts() {
  std::vector<GridShape> all;
  for (const int tensor : {1, 2}) {
    for (const int data : {1, 2, 4, 8}) {
      for (const int stages : {1, 2, 4}) {
        if (data * stages * tensor <= 8) all.emplace_back(data, stages, tensor);
      }
    }
  }
  return all;
}

// The case with number `number` of a layout under a schedule: shard.stage, shard.group, prefetch,
// recomputation, tied matrices.
EqualityCase variant(const GridShape& layout, const std::string& schedule, int shard_stage,
                     int recompute, bool tied) {
  EqualityCase test = case_of(layout, tied);
  test.schedule = schedule;
  const int data = layout.extent(kDataAxes);
  if (shard_stage > 0 && data > 1) {
    const int group = recompute == 1 && data > 2 ? data / 2 : data;
    test.grid[Axis::kReplicate] = data / group;
    test.grid[Axis::kShard] = group;
    test.whole_weights = shard_stage < 3;
    test.prefetch = recompute % 3;
    test.whole_gradients = shard_stage < 2;
    test.batch_runs.reduces_each = shard_stage >= 2;
  }
  if (recompute == 1) test.runs.recompute = parallel::Recompute::kSelective;
  if (recompute == 2) test.runs = {tied ? 2 : 1, parallel::Recompute::kFull};
  // A part of the blocks: on one stage of chunks, all of one and some of the next.
  if (recompute == 3) test.runs = {1, parallel::Recompute::kSelective, 2};
  if (recompute == 4) test.runs = {tied ? 1 : 2, parallel::Recompute::kFull, tied ? 2 : 3};
  return test;
}

constexpr std::array kRules = {"adamw", "lion", "muon",      "muon by heads", "sgd",
                               "lamb",  "lars", "adafactor", "schedule_free"};

// Every layout under every schedule; with these, shards, recomputation, tied matrices and update
// rules in turn, so that each pair of values meets in some case.
TEST_F(SameBits, EveryLayoutScheduleShardAndRecomputation) {
  constexpr int kShardStages = 4, kRecomputations = 5;
  int l = 0, rule = 0;
  for (const GridShape& layout : layouts()) {
    int s = 0;
    for (const std::string& schedule : parallel::schedule_names()) {
      for (int shard = 0; shard < kShardStages; ++shard) {
        for (int recompute = 0; recompute < kRecomputations; ++recompute) {
          for (const bool tied : {false, true}) {
            const bool in_cover = shard == (l + s) % kShardStages &&
                                  recompute == (l + 2 * s) % kRecomputations &&
                                  tied == ((l / 2 + s) % 2 == 0);
            if (!in_cover && !testing::whole_product()) continue;
            EqualityCase test = variant(layout, schedule, shard, recompute, tied);
            test.rule = kRules[static_cast<std::size_t>(rule++) % kRules.size()];
            expect_bits_of_reference(test);
          }
        }
      }
      ++s;
    }
    ++l;
  }
}

// Gradients of a pair of ranks that share all weights, whole, as testing::Tampering has it.
LocalParts tampered(bool shares_gradients, const testing::Tampering& tampering) {
  EqualityCase test = case_of({1, 1, 1}, false);
  test.grid[Axis::kShard] = 2;
  test.whole_weights = false;
  test.whole_gradients = !shares_gradients;
  test.micro_batches = 2;
  test.batch_runs = {};
  LocalParts gradients;
  const SimulatedRanksOptions options;
  run_simulated_ranks(testing::one_switch(2), 2, options, [&](SimulatedRank& rank) {
    ops::Context ctx = ops::make_cpu_context(1);
    const ProcessGrid grid(rank, test.grid);
    LocalParts here = testing::GradientObserver(ctx, grid, test).gradients(tampering);
    if (rank.rank() == 0) gradients = std::move(here);
  });
  return gradients;
}

std::set<std::string> names_that_differ(const LocalParts& a, const LocalParts& b) {
  std::set<std::string> names;
  for (const auto& [name, part] : a) {
    if (!testing::same_bits(part.values, b.at(name).values)) names.insert(name);
  }
  return names;
}

// A block that computes its backward with another block's weights has wrong gradients, and so have
// those before it. Those behind it are right.
TEST(Shards, AGatherOfTheWrongBlockIsNamed) {
  const LocalParts expected = tampered(true, {});
  const auto wrong =
      names_that_differ(expected, tampered(true, {.gathers_another = "blocks.3.matrices"}));
  for (const auto& [name, part] : expected) {
    const bool behind = name.starts_with("norm.") || name.starts_with("head.") ||
                        (name.starts_with("blocks.") && name > "blocks.4");
    if (behind) {
      EXPECT_FALSE(wrong.contains(name)) << name;
    }
    const bool before = name.starts_with("blocks.2.") || name.starts_with("token");
    if (before) {
      EXPECT_TRUE(wrong.contains(name)) << name;
    }
  }
  EXPECT_TRUE(wrong.contains("blocks.3.attention.query.weight"));
}

TEST(Shards, AReleaseTooEarlyIsNamed) {
  try {
    tampered(true, {.releases_early = "blocks.3.matrices"});
    FAIL() << "weights that are not there were used";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "matmul: b is undefined");
  }
}

TEST(Shards, AShardReducedTwiceIsNamed) {
  for (const bool shares_gradients : {false, true}) {
    const auto wrong =
        names_that_differ(tampered(shares_gradients, {}),
                          tampered(shares_gradients, {.reduces_twice = "blocks.3.vectors"}));
    EXPECT_FALSE(wrong.empty());
    for (const std::string& name : wrong) {
      EXPECT_TRUE(name.starts_with("blocks.3.")) << name;
      EXPECT_TRUE(name.ends_with(".bias") || name.find("norm") != std::string::npos) << name;
    }
  }
}

// A comparison that cannot fail would show nothing: with other runs, and on a tied matrix whose two
// uses are added up together, the bits are others.
TEST_F(SameBits, OtherSumsHaveOtherBits) {
  const auto differ = [&](const EqualityCase& test) {
    const LocalParts& expected = reference(1, test.model.tied).front().gradients;
    for (const Observed& observed : testing::observe_simulated(test)) {
      for (const auto& [name, part] : observed.gradients) {
        if (!testing::same_bits(part.values, expected.at(name).values)) return true;
      }
    }
    return false;
  };
  // A run of one micro-batch may have the bits of runs of two: a product may be added up as a
  // whole.
  for (const int runs : {2, 4}) {
    EqualityCase test = case_of({2, 1, 1}, false);
    EXPECT_FALSE(differ(test));
    test.batch_runs.runs = runs;
    EXPECT_TRUE(differ(test)) << runs;
  }
  EqualityCase tied = case_of({2, 1, 1}, true);
  EXPECT_FALSE(differ(tied));
  tied.separates_uses = false;
  EXPECT_TRUE(differ(tied));
}

}  // namespace
}  // namespace trireme
