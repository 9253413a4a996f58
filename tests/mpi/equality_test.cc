// On every grid, gradients, weights and losses equal those of one rank.
//
// One launch per number of ranks. The ranks train the references, each on its own, then all train
// together. The default is a cover of the factors' pairs; tests/run.sh --full takes the whole
// product.
#include "support/equality.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/log.h"

#include "support/comm_values.h"
#include "support/decoder_choices.h"
#include "support/mpi_test.h"
#include "support/told_observation.h"
#include "support/whole_product.h"

namespace trireme::testing {
namespace {

constexpr double kTolerance = 1e-5;  // relative, fp32
constexpr double kDropout = 0.1;

// Heads that the tensor ranks can split; 12 for worlds with a factor of 3.
EqualityCase base_case(const GridShape& grid, bool llama, bool tied) {
  EqualityCase test;
  test.grid = grid;
  test.model = models::gpt_preset(llama ? "test-llama" : "test-gpt");
  const bool threes = grid.ranks() % 3 == 0;
  if (threes) {
    test.model.width = 48;
    test.model.heads = 12;
    test.model.kv_heads = llama ? (grid[Axis::kTensor] == 3 ? 6 : 2) : 12;
    test.model.hidden = 144;
    test.model.context = 18;
    test.batch.length = 18;
  }
  // Not a multiple of the replicas, and enough for one each.
  test.micro_batches = grid.extent(kDataAxes) > 4 ? 9 : 5;
  test.model.tied = tied;
  test.model.dropout = tied ? static_cast<float>(kDropout) : 0.0f;
  return test;
}

std::vector<GridShape> factorizations(int ranks) {
  std::vector<GridShape> grids;
  for (int d = 1; d <= ranks; ++d) {
    for (int p = 1; d * p <= ranks; ++p) {
      if (ranks % (d * p) == 0) grids.push_back({d, p, ranks / (d * p)});
    }
  }
  return grids;
}

constexpr std::array kRules = {"adamw", "lion", "muon",      "muon by heads", "sgd",
                               "lamb",  "lars", "adafactor", "schedule_free"};

// Every grid, with each pair of the other options' values in some case; update rules in turn.
std::vector<EqualityCase> cases(int ranks) {
  std::vector<EqualityCase> all;
  int number = 0;
  for (const GridShape& grid : factorizations(ranks)) {
    // Rows of an orthogonal array over (family, tied, schedule, sequence parallel): a grid takes
    // two of its four, the next grid the other two.
    for (int bits = 0; bits < 16; ++bits) {
      const bool llama = bits & 1, tied = bits & 2, gpipe = bits & 4, sequence = bits & 8;
      const int row = (llama ? 1 : 0) + (tied ? 2 : 0);
      const bool in_cover = gpipe == (llama != tied) && sequence == llama && row / 2 == number % 2;
      if (!whole_product() && !in_cover) continue;
      if (gpipe && grid[Axis::kPipeline] == 1 && whole_product()) continue;   // the same as 1f1b
      if (sequence && grid[Axis::kTensor] == 1 && whole_product()) continue;  // the same as without
      EqualityCase test = base_case(grid, llama, tied);
      test.schedule = gpipe ? "gpipe" : "1f1b";
      test.sequence_parallel = sequence;
      test.rule = kRules[all.size() % kRules.size()];
      all.push_back(test);
    }
    ++number;
  }
  return all;
}

class Equality : public ::testing::Test {
 protected:
  // The references of cases: each trained by one rank alone, once for all grids that share it.
  void train_references(const std::vector<EqualityCase>& chosen) {
    std::vector<std::pair<std::string, EqualityCase>> missing;
    for (const EqualityCase& test : chosen) {
      const std::string key = key_of(test);
      if (references_.contains(key) ||
          std::ranges::any_of(missing, [&](const auto& one) { return one.first == key; })) {
        continue;
      }
      EqualityCase alone = test;
      alone.grid = {1, 1, 1};
      alone.sequence_parallel = false;
      alone.schedule = "1f1b";
      alone.chunks = {};
      missing.emplace_back(key, alone);
    }
    references_.merge(observe_shared(ctx_, alone_, missing, runtime_.world()));
  }

  const Observed& reference(const EqualityCase& test) { return references_.at(key_of(test)); }

  static std::string key_of(const EqualityCase& test) {
    return fmt::format("{} {} {} {} {} {} {} {} {}", test.choices, test.model.kv_heads,
                       test.model.layers, test.model.tied, test.model.biases.qkv,
                       test.micro_batches, name_of(test.compute),
                       fmt::join(test.frozen.patterns(), ","), test.rule);
  }

  // Collective. Gradients of one rank alone, which `root` computes.
  LocalParts gradients_alone(const EqualityCase& alone, int root) {
    Observed observed;
    if (runtime_.rank() == root) {
      observed.gradients = GradientObserver(ctx_, alone_, alone).gradients();
    }
    return told(observed, root, runtime_.world()).gradients;
  }

  Runtime& runtime_ = trireme::testing::runtime();
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid alone_{runtime_, {1, 1, 1}, {runtime_.rank()}};
  std::map<std::string, Observed> references_;
  double largest_gradient_ = 0.0, largest_weight_ = 0.0, largest_loss_ = 0.0, largest_zero_ = 0.0;
  std::string where_gradient_, where_weight_;

  void check_losses(const Observed& expected, const Observed& observed, const EqualityCase& test) {
    const double tolerance = tolerances_in(test.compute).loss;
    const std::string where = test.to_string();
    for (std::size_t step = 0; step < expected.losses.size(); ++step) {
      const double deviation = std::abs(observed.losses[step] / expected.losses[step] - 1.0);
      largest_loss_ = std::max(largest_loss_, deviation);
      EXPECT_LE(deviation, tolerance) << where << ", loss of AdamW step " << step + 1;
    }
    EXPECT_LE(std::abs(observed.evaluation / expected.evaluation - 1.0), tolerance)
        << where << ", evaluation";
  }

  void check_parts(const LocalParts& expected, const LocalParts& observed, const EqualityCase& test,
                   const std::string& what, double tolerance, double& largest,
                   std::string& largest_at) {
    for (const Deviation& deviation : compare(expected, observed, runtime_.world())) {
      const bool zero = zero_in_exact_arithmetic(deviation.name, test.model);
      EXPECT_TRUE(deviation.covered) << test.to_string() << ": " << deviation.name;
      EXPECT_LE(zero ? deviation.absolute : deviation.relative,
                zero ? tolerances_in(test.compute).zero : tolerance)
          << test.to_string() << ", " << what << " of " << deviation.name;
      if (zero) largest_zero_ = std::max(largest_zero_, deviation.absolute);
      if (!zero && deviation.relative > largest) {
        largest = deviation.relative;
        largest_at = test.to_string() + ", " + deviation.name;
      }
    }
  }

  void check_all(const std::vector<EqualityCase>& chosen, const std::string& type) {
    train_references(chosen);
    for (const EqualityCase& test : chosen) {
      const Observed& expected = reference(test);
      const ProcessGrid grid(runtime_, test.grid);
      const Observed observed = observe(ctx_, grid, test);
      const Tolerances limits = tolerances_in(test.compute);
      check_parts(expected.gradients, observed.gradients, test, "gradient", limits.gradient,
                  largest_gradient_, where_gradient_);
      check_parts(expected.weights, observed.weights, test, "weight after ten SGD steps",
                  limits.weight, largest_weight_, where_weight_);
      check_losses(expected, observed, test);
      EXPECT_EQ(observed.padding, 0.0) << test.to_string();
    }
    if (runtime_.rank() != 0) return;
    print_line(
        fmt::format("{} cases on {} ranks, {}; largest relative deviations: gradient {:.1e} ({}), "
                    "weight {:.1e} ({}), loss {:.1e}; {:.1e} absolute where zero is exact",
                    chosen.size(), runtime_.size(), type, largest_gradient_, where_gradient_,
                    largest_weight_, where_weight_, largest_loss_, largest_zero_));
  }

  void check_rounding_type(DType compute) {
    std::vector<EqualityCase> chosen;
    std::string grid;
    int number = -1;
    for (const EqualityCase& test : cases(runtime_.size())) {
      const bool next = test.grid.to_string() != grid;
      if (next) ++number;
      grid = test.grid.to_string();
      // A grid treats both types of 16 bits alike, so in the cover it meets one of them.
      const bool in_cover = next && (number % 2 == 0) == (compute == DType::kBF16);
      if (!whole_product() && runtime_.size() > 2 && !in_cover) continue;
      chosen.push_back(test);
      chosen.back().compute = compute;
    }
    check_all(chosen, std::string(name_of(compute)));
    // What the type alone does, on one rank: the measure of the tolerances; and it is really in
    // use.
    std::vector<EqualityCase> in_fp32 = chosen;
    for (EqualityCase& test : in_fp32) test.compute = DType::kF32;
    train_references(in_fp32);
    double gradient = 0.0;
    for (EqualityCase test : chosen) {
      const LocalParts& in_type = reference(test).gradients;
      test.compute = DType::kF32;
      for (const Deviation& deviation :
           compare(reference(test).gradients, in_type, alone_.world())) {
        if (!zero_in_exact_arithmetic(deviation.name, test.model)) {
          gradient = std::max(gradient, deviation.relative);
        }
      }
    }
    EXPECT_GT(gradient, kTolerance);
    if (runtime_.rank() != 0) return;
    print_line(
        fmt::format("{} on one rank against fp32: gradient {:.1e}", name_of(compute), gradient));
  }
};

TEST_F(Equality, EveryGridFollowsOneRank) {
  check_all(cases(runtime_.size()), "fp32");
}

// Chunks and deferred weight gradients, with families and tying in turn. Shares are unequal where
// the schedule takes them.
std::vector<EqualityCase> schedule_cases(int ranks) {
  std::vector<EqualityCase> all;
  int number = 0;
  for (const int stages : {2, 4}) {
    if (ranks % stages != 0) continue;
    for (const std::string schedule : {"interleaved", "zb-h1", "zb-v"}) {
      const int rest = ranks / stages;
      const bool llama = number % 2 == 1, tied = number % 3 != 1;
      const GridShape grid =
          number % 2 == 0 ? GridShape(rest, stages, 1) : GridShape(1, stages, rest);
      EqualityCase test = base_case(grid, llama, tied);
      test.model.layers = 2 * stages;
      test.schedule = schedule;
      test.sequence_parallel = number % 4 == 1;
      if (schedule == "interleaved") test.micro_batches = ranks;
      all.push_back(test);
      ++number;
    }
  }
  return all;
}

TEST_F(Equality, EveryScheduleFollowsOneRank) {
  check_all(schedule_cases(runtime_.size()), "chunks and zero-bubble");
}

// Models that choose otherwise than GPT-2 and Llama; a grid takes one of them, the next grid the
// next one. Where the tensor ranks hold copies of key heads it is the one that normalizes all heads
// together, besides.
TEST_F(Equality, PublishedChoicesFollowOneRank) {
  std::vector<EqualityCase> chosen;
  std::size_t number = 0;
  const auto add = [&](const GridShape& grid, const DecoderChoices& choices) {
    EqualityCase test = base_case(grid, true, chosen.size() % 2 == 0);
    choices.apply(test.model);
    test.choices = choices.name;
    test.steps = 3;  // norms of small heads let rounding grow from step to step
    test.sequence_parallel = grid[Axis::kTensor] > 1 && chosen.size() % 3 == 0;
    chosen.push_back(test);
  };
  for (const GridShape& grid : factorizations(runtime_.size())) {
    for (const DecoderChoices& choices : kDecoderChoices) {
      if (whole_product() || number % std::size(kDecoderChoices) == 0) add(grid, choices);
      ++number;
    }
    ++number;
  }
  for (const DecoderChoices& choices : kDecoderChoices) {
    if (!whole_product() && runtime_.size() % 3 != 0) {
      add({1, 1, runtime_.size()}, choices);
    }
  }
  check_all(chosen, "choices of published models");
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
TEST_F(Equality, ZeroBubbleHasTheBitsOf1F1B) {
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

// Grids in turn, with families and tying in turn.
TEST_F(Equality, EveryGridFollowsOneRankInBf16) {
  check_rounding_type(DType::kBF16);
}

TEST_F(Equality, EveryGridFollowsOneRankInFp16) {
  check_rounding_type(DType::kF16);
}

// The ranks' grid with the most dimensions above 1.
GridShape most_dimensions(int ranks) {
  const std::vector<GridShape> grids = factorizations(ranks);
  return *std::max_element(grids.begin(), grids.end(), [](const auto& a, const auto& b) {
    const auto dimensions = [](const GridShape& g) {
      return std::ranges::count_if(kGridDimensions, [&](const GridDimension& dimension) {
        return g.extent(dimension.axes) > 1;
      });
    };
    return dimensions(a) < dimensions(b);
  });
}

// What is computed again has the bits of the first time, on every grid.
TEST_F(Equality, RecomputationHasTheSameBits) {
  int number = 0;
  for (const GridShape& shape : factorizations(runtime_.size())) {
    const bool llama = number % 2 == 1, tied = number % 3 != 1;
    EqualityCase test = base_case(shape, llama, tied);
    test.model.dropout = static_cast<float>(kDropout);
    test.sequence_parallel = number % 4 < 2;
    test.schedule = number % 2 == 0 ? "1f1b" : "gpipe";
    test.compute = number % 3 == 2 ? DType::kBF16 : DType::kF32;
    const ProcessGrid grid(runtime_, shape);
    const LocalParts expected = GradientObserver(ctx_, grid, test).gradients();
    for (const parallel::RunOptions& runs :
         {parallel::RunOptions{1, parallel::Recompute::kFull},
          parallel::RunOptions{2 + number % 2, parallel::Recompute::kFull},
          parallel::RunOptions{1, parallel::Recompute::kSelective}}) {
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

// The last stage computes its blocks again with another key, for its last micro-batch. What the
// head added before is right, and what it adds to the last block's weights is not.
TEST_F(Equality, NamesARecomputationWithAnotherKey) {
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
TEST_F(Equality, EqualRunsGiveTheSameBitsOnEveryNumberOfReplicas) {
  const int size = runtime_.size();
  for (const int each : {2, 4}) {
    for (const bool tied : {false, true}) {
      EqualityCase test = base_case({size, 1, 1}, !tied, tied);
      test.micro_batches = 2 * each * size;
      test.batch_runs = {each * size, false};
      EqualityCase alone = test;
      alone.grid = {1, 1, 1};
      const LocalParts expected = gradients_alone(alone, 0);
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
      const LocalParts others = gradients_alone(alone, 0);
      EXPECT_TRUE(std::ranges::any_of(expected, [&](const auto& entry) {
        return !same_bits(others.at(entry.first).values, entry.second.values);
      }));
    }
  }
}

// The grid whose data dimension is divided into groups of `group` ranks that share one copy.
GridShape sharded(GridShape grid, int group) {
  grid[Axis::kReplicate] = grid.extent(kDataAxes) / group;
  grid[Axis::kShard] = group;
  return grid;
}

// Whatever is sharded, and among how many: with groups of a power of two or of all replicas,
// gradients, weights and losses have the bits of the same grid without shards. Shares of
// micro-batches are unequal, or each micro-batch is a run.
TEST_F(Equality, ShardsHaveTheBitsOfWholeCopies) {
  int number = 0;
  for (const GridShape& shape : factorizations(runtime_.size())) {
    const int replicas = shape.extent(kDataAxes);
    if (replicas == 1) continue;
    const bool llama = number % 2 == 1, tied = number % 3 != 1;
    EqualityCase test = base_case(shape, llama, tied);
    test.model.dropout = static_cast<float>(kDropout);
    test.sequence_parallel = number % 4 < 2;
    test.schedule = number % 2 == 0 ? "1f1b" : "gpipe";
    test.compute = number % 3 == 2 ? DType::kBF16 : DType::kF32;
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
        const ProcessGrid grid(runtime_, cut.grid);
        const Observed observed = observe(ctx_, grid, cut);
        expect_same_bits(expected.gradients, observed.gradients, cut, "gradient");
        expect_same_bits(expected.weights, observed.weights, cut, "weight after ten SGD steps");
        EXPECT_EQ(observed.losses, expected.losses) << cut.to_string();
        EXPECT_EQ(observed.evaluation, expected.evaluation) << cut.to_string();
        EXPECT_EQ(observed.padding, 0.0) << cut.to_string();
      }
    }
    ++number;
  }
}

// Returns the schedules in turn, but for those that the blocks or the micro-batches do not fit.
std::string schedule_that_fits(const EqualityCase& test, int number) {
  const auto& names = parallel::schedule_names();
  for (;; ++number) {
    const std::string& name = names[static_cast<std::size_t>(number) % names.size()];
    const auto layout = parallel::schedule_layout(name, test.grid[Axis::kPipeline], {});
    const int count = test.micro_batches / test.grid.extent(kDataAxes);
    if (layout.parts() <= test.model.layers + 2 &&
        parallel::takes_micro_batches(name, layout, count)) {
      return name;
    }
  }
}

// Frozen parameters, of the first blocks or of each, on every grid, with and without shards.
// same_bits_test has many more cases of these.
TEST_F(Equality, FrozenParametersFollowOneRank) {
  std::vector<EqualityCase> chosen;
  int number = 0;
  for (const GridShape& shape : factorizations(runtime_.size())) {
    EqualityCase test = base_case(shape, number % 2 == 1, number % 3 == 1);
    const bool learned = test.model.positions == nn::PositionKind::kLearned;
    const char* of_first =
        learned ? "embedding.*,positions.*,blocks.[0-4].*" : "embedding.*,blocks.[0-4].*";
    const char* of_each = learned ? "blocks.*.weight,norm.*" : "blocks.*.mlp.*,norm.*";
    test.frozen = NamePatterns::of_list(number % 4 < 2 ? of_first : of_each);
    test.schedule = schedule_that_fits(test, number);
    test.sequence_parallel = number % 4 < 2;
    test.compute = number % 3 == 2 ? DType::kBF16 : DType::kF32;
    const int replicas = shape.extent(kDataAxes);
    if (replicas > 1 && number % 3 != 0) {
      test.grid = sharded(shape, replicas);
      test.whole_weights = number % 2 == 1;
    }
    test.steps = 4;
    chosen.push_back(test);
    ++number;
  }
  check_all(chosen, "frozen");
}

// With equal runs neither replicas, stages, schedules, shards nor recomputation change a bit of
// gradients, weights, norms (by clipping) and losses. same_bits_test has many more cases of these.
TEST_F(Equality, EqualRunsGiveTheSameBitsOnEveryLayout) {
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

// A comparison that cannot fail would show nothing: what one rank adds to one parameter's gradient
// is scaled before the reductions over ranks. That parameter must be named, alone, and deviate by
// what the rank's contribution was.
TEST_F(Equality, NamesAWrongGradient) {
  Communicator& world = runtime_.world();
  const EqualityCase test = base_case(most_dimensions(runtime_.size()), false, true);
  EqualityCase alone = test;
  alone.grid = {1, 1, 1};
  const LocalParts expected = gradients_alone(alone, 0);
  const ProcessGrid grid(runtime_, test.grid);
  GradientObserver observer(ctx_, grid, test);
  check_parts(expected, observer.gradients(), test, "gradient", kTolerance, largest_gradient_,
              where_gradient_);
  const std::map<std::string, double> contributions = observer.contributions();
  int number = 0;
  for (const auto& [name, whole] : expected) {
    if (zero_in_exact_arithmetic(name, test.model)) continue;
    // Many ranks are slow, so there the cover takes every fifth one: of each kind in some block.
    if (!whole_product() && runtime_.size() > 4 && ++number % 5 != 0) continue;
    // The rank that contributes most is taken: some see no target at all for some parameter.
    const auto found = contributions.find(name);
    const double here = found == contributions.end() ? -1.0 : found->second;
    const double most = world.all_reduce_host(here, ReduceOp::kMax);
    const int rank =
        world.all_reduce_host(here == most ? runtime_.rank() : runtime_.size(), ReduceOp::kMin);
    for (const float factor : {0.0f, 2.0f}) {
      const Tampering tampering{runtime_.rank() == rank ? name : "", factor};
      for (const Deviation& deviation : compare(expected, observer.gradients(tampering), world)) {
        if (zero_in_exact_arithmetic(deviation.name, test.model)) continue;
        const bool wrong = deviation.name == name;
        EXPECT_EQ(deviation.relative > kTolerance, wrong)
            << name << " scaled by " << factor << " on rank " << rank << ": " << deviation.name
            << " deviates by " << deviation.relative;
        // Both factors are one contribution away from the right sum.
        if (wrong) {
          const double scale = deviation.absolute / deviation.relative;
          EXPECT_NEAR(deviation.absolute / scale, most / scale, kTolerance) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::testing
