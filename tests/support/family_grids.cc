#include "support/family_grids.h"

#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/comm_values.h"
#include "support/mpi_test.h"
#include "support/whole_product.h"

namespace trireme::testing {
namespace {

constexpr std::array<DType, 3> kTypes = {DType::kF32, DType::kBF16, DType::kF16};
constexpr int kFewRanks = 4;  // more of them run a few grids alone

// Few ranks meet a cover of the combinations, and all of them under tests/run.sh --full.
bool covers() {
  return runtime().size() <= kFewRanks && !whole_product();
}

Observed alone(ops::Context& ctx, EqualityCase test) {
  test.grid = {1, 1, 1};
  test.schedule = "1f1b";
  test.sequence_parallel = false;
  return observe(ctx, ProcessGrid(runtime(), test.grid, {runtime().rank()}), test);
}

Observed together(ops::Context& ctx, const EqualityCase& test) {
  return observe(ctx, ProcessGrid(runtime(), test.grid), test);
}

void expect_same(const LocalParts& expected, const LocalParts& seen, const std::string& what) {
  EXPECT_FALSE(seen.empty());
  for (const auto& [name, part] : seen) {
    EXPECT_TRUE(same_bits(part.values, expected.at(name).values)) << what << " of " << name;
  }
}

// `seen` may be a stage of what is expected.
void expect_same(const Observed& expected, const Observed& seen) {
  expect_same(expected.gradients, seen.gradients, "gradient");
  expect_same(expected.weights, seen.weights, "weight");
  for (const auto& [name, values] : seen.states) {
    EXPECT_TRUE(same_bits(values, expected.states.at(name))) << name;
  }
  EXPECT_EQ(seen.losses, expected.losses);
  EXPECT_EQ(seen.evaluation, expected.evaluation);
  EXPECT_EQ(seen.padding, 0.0);
}

// A type is in use, and computes the same model: otherwise a comparison within it would say little.
void expect_rounded(const Observed& in_fp32, const Observed& rounded) {
  for (const auto& [name, part] : rounded.gradients) {
    for (const float value : part.values) ASSERT_TRUE(std::isfinite(value)) << name;
  }
  for (std::size_t step = 0; step < in_fp32.losses.size(); ++step) {
    EXPECT_NE(rounded.losses[step], in_fp32.losses[step]) << "step " << step;
    EXPECT_NEAR(rounded.losses[step] / in_fp32.losses[step], 1.0, 0.02) << "step " << step;
  }
}

void expect_alike(const LocalParts& expected, const LocalParts& seen, double limit, double zero,
                  const std::string& what) {
  for (const Deviation& deviation : compare(expected, seen, runtime().world())) {
    EXPECT_TRUE(deviation.covered) << deviation.name;
    // A constant added to all scores of a query changes nothing.
    const bool is_zero = deviation.name.ends_with("attention.key.bias");
    EXPECT_LE(is_zero ? deviation.absolute : deviation.relative, is_zero ? zero : limit)
        << what << " of " << deviation.name;
  }
}

}  // namespace

std::vector<GridShape> some_grids(int most_tensor) {
  const int ranks = runtime().size();
  std::vector<GridShape> all;
  if (ranks == 6) all = {{3, 2, 1}, {2, 3, 1}, {3, 1, 2}};
  if (ranks == 8) all = {{4, 2, 1}, {2, 4, 1}, {2, 2, 2}, {2, 1, 4}};
  for (int stages = 1; ranks <= kFewRanks && stages <= ranks; ++stages) {
    for (int tensor = 1; tensor * stages <= ranks; ++tensor) {
      if (ranks % (stages * tensor) == 0) all.push_back({ranks / stages / tensor, stages, tensor});
    }
  }
  std::erase_if(all, [&](const GridShape& grid) { return grid[Axis::kTensor] > most_tensor; });
  return all;
}

EqualityCase sharded(EqualityCase test, int stage) {
  const int replicas = test.grid.extent(kDataAxes);
  // Two copies of the state, where there can be.
  const int shards = replicas == 4 && stage == 2 ? 2 : replicas;
  test.grid[Axis::kReplicate] = replicas / shards;
  test.grid[Axis::kShard] = shards;
  // Gradients of a replica's runs that add up before they are reduced stay whole.
  const parallel::WorkSplit work = test.work();
  const bool adds_up = work.runs() > 1 && !work.reduces_each();
  test.whole_gradients = stage < 2 || adds_up;
  test.whole_weights = stage < 3;
  return test;
}

void expect_same_bits_on_every_layout(EqualityCase family) {
  ops::Context ctx = ops::make_cpu_context(1);
  const int size = runtime().size();
  family.batch_runs = {size % 3 == 0 ? 6 : 4, true};  // a number that the replicas divide
  family.micro_batches = size % 3 == 0 ? 6 : 8;
  family.steps = 2;
  const std::vector<GridShape> grids = some_grids(1);
  family.compute = DType::kF32;
  const Observed in_fp32 = alone(ctx, family);
  for (std::size_t type = 0; type < kTypes.size(); ++type) {
    if (covers() && kTypes[type] == (size == 2 ? DType::kBF16 : DType::kF16)) continue;
    EqualityCase test = family;
    test.compute = kTypes[type];
    const Observed expected = type == 0 ? in_fp32 : alone(ctx, test);
    if (type > 0) expect_rounded(in_fp32, expected);
    for (std::size_t number = 0; number < grids.size(); ++number) {
      if (size > kFewRanks && (number + type + static_cast<std::size_t>(size / 2)) % 3 == 2)
        continue;
      test.grid = grids[number];
      std::vector<EqualityCase> layouts = {test};
      if (test.grid.extent(kDataAxes) > 1) {
        layouts.push_back(sharded(test, 1 + static_cast<int>(number + type) % 3));
        if (covers()) layouts.erase(layouts.begin() + ((number + type) % 2 == 0 ? 0 : 1));
      }
      for (const EqualityCase& layout : layouts) {
        SCOPED_TRACE(layout.to_string());
        const Observed seen = together(ctx, layout);
        expect_same(expected, seen);
        // The stages have all states together.
        const auto count = static_cast<double>(seen.states.size());
        EXPECT_EQ(runtime().world().all_reduce_host(count, ReduceOp::kSum),
                  static_cast<double>(expected.states.size()) * layout.grid.extent(kDataAxes));
      }
    }
  }
}

void expect_bits_of_whole_copies(const EqualityCase& copies) {
  if (copies.grid.extent(kDataAxes) == 1) return;
  ops::Context ctx = ops::make_cpu_context(1);
  const Observed expected = together(ctx, copies);
  // What a grid of four ranks leaves out: 1 on replicas alone, 2 with stages, 3 with tensor ranks.
  const int left_out = copies.grid[Axis::kPipeline] + copies.grid[Axis::kTensor] / 2 * 2;
  for (int stage = 1; stage <= 3; ++stage) {
    if (runtime().size() > kFewRanks && stage != 2) continue;
    if (runtime().size() == kFewRanks && covers() && stage == left_out) continue;
    const EqualityCase test = sharded(copies, stage);
    SCOPED_TRACE(test.to_string());
    expect_same(expected, together(ctx, test));
  }
}

void expect_tensor_ranks_to_follow_in_16_bits(EqualityCase family) {
  ops::Context ctx = ops::make_cpu_context(1);
  const int size = runtime().size();
  family.steps = 2;
  family.compute = DType::kF32;
  const Observed in_fp32 = alone(ctx, family);
  for (const DType type : {DType::kBF16, DType::kF16}) {
    EqualityCase test = family;
    test.compute = type;
    const Tolerances limits = tolerances_in(type);
    const Observed expected = alone(ctx, test);
    expect_rounded(in_fp32, expected);
    bool turn = type == DType::kBF16;
    int number = -1;
    for (const GridShape& grid : some_grids(kFewRanks)) {
      if (grid[Axis::kTensor] == 1) continue;
      turn = !turn;
      ++number;
      // A grid meets one of the types.
      if (turn && (size == 8 || (size == kFewRanks && covers()))) continue;
      test.grid = grid;
      for (const bool sequence : {false, true}) {
        if (size == kFewRanks && covers() && sequence != (number < 2)) continue;
        test.sequence_parallel = sequence;
        SCOPED_TRACE(test.to_string());
        const Observed seen = together(ctx, test);
        expect_alike(expected.gradients, seen.gradients, limits.gradient, limits.zero, "gradient");
        // Biases begin at zero and have made few steps, so what is rounded is more of them.
        expect_alike(expected.weights, seen.weights, 2 * limits.weight, limits.zero, "weight");
        for (std::size_t step = 0; step < expected.losses.size(); ++step) {
          EXPECT_NEAR(seen.losses[step] / expected.losses[step], 1.0, limits.loss)
              << "step " << step;
        }
        EXPECT_NEAR(seen.evaluation / expected.evaluation, 1.0, limits.loss);
      }
    }
  }
}

}  // namespace trireme::testing
