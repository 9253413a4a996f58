// What changes no bit of gradients, weights and losses: recomputation, shards, and, with equal runs
// of micro-batches, the whole layout of the ranks.
#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/comm_values.h"
#include "support/equality.h"
#include "support/equality_cases.h"
#include "support/mpi_test.h"
#include "support/told_observation.h"
#include "support/whole_product.h"

namespace trireme::testing {
namespace {

class EqualBits : public ::testing::Test {
 protected:
  Runtime& runtime_ = trireme::testing::runtime();
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid alone_{runtime_, {1, 1, 1}, {runtime_.rank()}};
};

// Another choice of what a case has for each number, on any grid.
EqualityCase varied_case(const GridShape& shape, int number) {
  const bool llama = number % 2 == 1, tied = number % 3 != 1;
  EqualityCase test = base_case(shape, llama, tied);
  test.model.dropout = static_cast<float>(kDropout);
  test.sequence_parallel = number % 4 < 2;
  test.schedule = number % 2 == 0 ? "1f1b" : "gpipe";
  test.compute = number % 3 == 2 ? DType::kBF16 : DType::kF32;
  test.split_masters = number % 6 == 2;
  return test;
}

void expect_same_bits(const LocalParts& expected, const LocalParts& observed,
                      const EqualityCase& test, const std::string& what) {
  for (const auto& [name, part] : expected) {
    EXPECT_TRUE(same_bits(observed.at(name).values, part.values))
        << test.to_string() << ", " << what << " of " << name;
  }
}

// A stage of one chunk has the same parameters under all schedules. Those of chunks are compared by
// interleavings_test.
TEST_F(EqualBits, ZeroBubbleHasTheBitsOf1F1B) {
  for (EqualityCase test : schedule_cases(runtime_.size())) {
    if (test.schedule != "zb-h1") continue;
    const ProcessGrid grid(runtime_, test.grid);
    for (const bool recompute : {false, true}) {
      if (recompute) test.runs = {2, parallel::Recompute::kFull};
      test.schedule = "1f1b";
      const LocalParts expected = GradientObserver(ctx_, grid, test).gradients();
      test.schedule = "zb-h1";
      const LocalParts observed = GradientObserver(ctx_, grid, test).gradients();
      expect_same_bits(expected, observed, test, "gradient");
    }
  }
}

// What is computed again has the bits of the first time, on every grid.
TEST_F(EqualBits, RecomputationHasTheSameBits) {
  int number = 0;
  for (const GridShape& shape : factorizations(runtime_.size())) {
    EqualityCase test = varied_case(shape, number);
    const ProcessGrid grid(runtime_, shape);
    const LocalParts expected = GradientObserver(ctx_, grid, test).gradients();
    for (const parallel::RunOptions& runs :
         {parallel::RunOptions{1, parallel::Recompute::kFull},
          parallel::RunOptions{2 + number % 2, parallel::Recompute::kFull},
          parallel::RunOptions{1, parallel::Recompute::kSelective},
          number % 3 == 2
              ? parallel::RunOptions{1, parallel::Recompute::kSelective, 1}
              : parallel::RunOptions{1 + number % 2, parallel::Recompute::kFull, 1 + number % 3}}) {
      test.runs = runs;
      const LocalParts observed = GradientObserver(ctx_, grid, test).gradients();
      for (const auto& [name, part] : expected) {
        EXPECT_TRUE(same_bits(observed.at(name).values, part.values))
            << test.to_string() << ", runs of " << runs.blocks << ": " << name;
      }
    }
    ++number;
  }
}

// Scales follow from their blocks alone, so neither replicas, stages and shards nor recomputation
// change a bit of products in e4m3.
TEST_F(EqualBits, BlocksInFp8HaveTheSameBitsOnEveryLayout) {
  const int size = runtime_.size();
  if (size != 2 && size != 4) return;
  for (const bool llama : {false, true}) {
    EqualityCase alone = scaled_case({1, 1, 1}, llama);
    alone.micro_batches = size;
    alone.batch_runs = {size, false};
    const LocalParts expected = gradients_alone(ctx_, alone_, alone, runtime_.world());
    const GridShape replicas = llama ? sharded({size, 1, 1}, size) : GridShape{size, 1, 1};
    for (const GridShape& shape : {replicas, GridShape{size / 2, 2, 1}}) {
      const ProcessGrid grid(runtime_, shape);
      EqualityCase test = alone;
      test.grid = shape;
      test.whole_weights = !llama;
      for (const parallel::RunOptions& runs :
           {parallel::RunOptions{}, parallel::RunOptions{1, parallel::Recompute::kSelective},
            parallel::RunOptions{1, parallel::Recompute::kFull}}) {
        test.runs = runs;
        test.schedule = shape[Axis::kPipeline] > 1 && !llama ? "zb-h1" : "1f1b";
        const LocalParts observed = GradientObserver(ctx_, grid, test).gradients();
        for (const auto& [name, part] : observed) {  // of this stage
          EXPECT_TRUE(same_bits(part.values, expected.at(name).values))
              << test.to_string() << ", gradient of " << name;
        }
      }
    }
  }
}

// The last stage computes its blocks again with another key, for its last micro-batch. What the
// head added before is right, and what it adds to the last block's weights is not.
TEST_F(EqualBits, NamesARecomputationWithAnotherKey) {
  EqualityCase test = base_case(most_dimensions(runtime_.size()), false, true);
  test.runs.recompute = parallel::Recompute::kFull;
  const ProcessGrid grid(runtime_, test.grid);
  GradientObserver observer(ctx_, grid, test);
  const LocalParts expected = observer.gradients();
  const LocalParts wrong = observer.gradients({.other_key_after = "norm.weight"});
  if (grid.index(Axis::kPipeline) != test.grid[Axis::kPipeline] - 1) return;
  const std::string last = fmt::format("blocks.{}.", test.model.layers - 1);
  for (const auto& [name, part] : expected) {
    if (name.starts_with("norm.")) {
      EXPECT_TRUE(same_bits(wrong.at(name).values, part.values)) << name;
    } else if (name.starts_with(last)) {
      EXPECT_FALSE(same_bits(wrong.at(name).values, part.values)) << name;
    }
  }
}

// With equal runs of micro-batches the number of replicas changes no bit, and neither does who
// computes which run.
TEST_F(EqualBits, EqualRunsGiveTheSameBitsOnEveryNumberOfReplicas) {
  const int size = runtime_.size();
  for (const int each : {2, 4}) {
    for (const bool tied : {false, true}) {
      EqualityCase test = base_case({size, 1, 1}, !tied, tied);
      test.micro_batches = 2 * each * size;
      test.batch_runs = {each * size, false};
      EqualityCase alone = test;
      alone.grid = {1, 1, 1};
      const LocalParts expected = gradients_alone(ctx_, alone_, alone, runtime_.world());
      bool rounds_differ = false;
      for (const bool reduces_each : {false, true}) {
        test.batch_runs.reduces_each = reduces_each;
        rounds_differ = rounds_differ || test.work().reduces_each();
        const ProcessGrid grid(runtime_, test.grid);
        GradientObserver observer(ctx_, grid, test);
        for (int step = 0; step < 2; ++step) {
          expect_same_bits(expected, observer.gradients(), test, "gradient");
        }
      }
      EXPECT_EQ(rounds_differ, std::has_single_bit(static_cast<unsigned>(size)));
      // The order matters: with one run for each replica the bits are others.
      if (each < 4) continue;
      alone.batch_runs = {};
      const LocalParts others = gradients_alone(ctx_, alone_, alone, runtime_.world());
      EXPECT_TRUE(std::ranges::any_of(expected, [&](const auto& entry) {
        return !same_bits(others.at(entry.first).values, entry.second.values);
      }));
    }
  }
}

// Whatever is sharded, and among how many: with groups of a power of two or of all replicas,
// gradients, weights and losses have the bits of the same grid without shards. Shares of
// micro-batches are unequal, or each micro-batch is a run.
TEST_F(EqualBits, ShardsHaveTheBitsOfWholeCopies) {
  int number = 0;
  for (const GridShape& shape : factorizations(runtime_.size())) {
    const int replicas = shape.extent(kDataAxes);
    if (replicas == 1) continue;
    EqualityCase test = varied_case(shape, number);
    if (number % 2 == 0 && std::has_single_bit(static_cast<unsigned>(replicas))) {
      test.micro_batches = 3 * replicas;
      test.batch_runs = {test.micro_batches, true};
    }
    Observed expected;
    {
      const ProcessGrid grid(runtime_, shape);
      expected = observe(ctx_, grid, test);
    }
    int variant = 0;
    for (int group = replicas; group > 1; group = group % 2 == 0 ? group / 2 : 1) {
      if (group != replicas && (group & (group - 1)) != 0) continue;
      for (const bool whole_weights : {true, false}) {
        // Many ranks are slow, so there the cover takes every second one.
        ++variant;
        if (!whole_product() && runtime_.size() > 4 && (number + variant) % 2 == 0) continue;
        // 0, 1 or 2 ahead; blocks alone or in runs, which are computed once or twice.
        EqualityCase cut = test;
        cut.grid = sharded(shape, group);
        cut.whole_weights = whole_weights;
        cut.whole_gradients = whole_weights && (number + variant) % 4 < 2;
        cut.prefetch = (number + variant) % 3;
        cut.runs.blocks = 1 + (number + variant) % 2;
        if ((number + variant) % 4 > 1) cut.runs.recompute = parallel::Recompute::kFull;
        if ((number + variant) % 8 == 1) cut.runs.recompute = parallel::Recompute::kSelective;
        if ((number + variant) % 4 == 3) cut.runs.recomputed_blocks = 1 + number % 2;
        const ProcessGrid grid(runtime_, cut.grid);
        const Observed observed = observe(ctx_, grid, cut);
        expect_same_bits(expected.gradients, observed.gradients, cut, "gradient");
        expect_same_bits(expected.weights, observed.weights, cut, "weight after the SGD steps");
        EXPECT_EQ(observed.losses, expected.losses) << cut.to_string();
        EXPECT_EQ(observed.evaluation, expected.evaluation) << cut.to_string();
        EXPECT_EQ(observed.padding, 0.0) << cut.to_string();
      }
    }
    ++number;
  }
}

// With equal runs neither replicas, stages, schedules, shards nor recomputation change a bit of
// gradients, weights, norms (by clipping) and losses. same_bits_test has many more cases of these.
TEST_F(EqualBits, EqualRunsGiveTheSameBitsOnEveryLayout) {
  constexpr int kRuns = 8;
  const int size = runtime_.size();
  std::map<std::pair<int, bool>, Observed> references;  // by tensor ranks and tying
  int number = 0;
  for (const GridShape& shape : factorizations(size)) {
    const int tensor = shape[Axis::kTensor];
    if (kRuns % shape.extent(kDataAxes) != 0 || tensor > 2) continue;
    EqualityCase test = base_case(shape, false, number % 3 != 2);
    test.model.dropout = static_cast<float>(kDropout);
    test.micro_batches = 2 * kRuns;
    test.batch_runs = {kRuns, number % 2 == 1};
    test.steps = 4;
    test.sequence_parallel = tensor > 1;
    const auto key = std::make_pair(tensor, test.model.tied);
    if (!references.contains(key)) {
      EqualityCase alone = test;
      alone.grid = {1, 1, tensor};
      std::vector<int> ranks;
      for (int i = 0; i < tensor; ++i) ranks.push_back(runtime_.rank() / tensor * tensor + i);
      const ProcessGrid grid(runtime_, alone.grid, ranks);
      references.emplace(key, observe(ctx_, grid, alone));
    }
    test.schedule = schedule_that_fits(test, number);
    if (number % 3 == 1) test.runs = {1, parallel::Recompute::kFull};
    // Where shards can differ from whole copies.
    const int replicas = shape.extent(kDataAxes);
    if (replicas > 1 && number % 2 == 1) {
      test.grid = sharded(shape, replicas);
      test.whole_weights = number % 4 == 1;
    }
    const ProcessGrid grid(runtime_, test.grid);
    const Observed observed = observe(ctx_, grid, test);
    const Observed& expected = references.at(key);
    EXPECT_EQ(observed.losses, expected.losses) << test.to_string();
    EXPECT_EQ(observed.evaluation, expected.evaluation) << test.to_string();
    EXPECT_FALSE(observed.weights.empty());
    // This stage's are some of the reference's.
    expect_same_bits(observed.gradients, expected.gradients, test, "gradient");
    expect_same_bits(observed.weights, expected.weights, test, "weight");
    ++number;
  }
}

}  // namespace
}  // namespace trireme::testing
