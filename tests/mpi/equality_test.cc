// On every grid, gradients, weights and losses equal those of one rank.
//
// One launch per number of ranks. The ranks train the references, each on its own, then all train
// together. The default is a cover of the factors' pairs; tests/run.sh --full takes the whole
// product. equality_bits_test.cc has what changes no bit.
#include "support/equality.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/log.h"

#include "support/decoder_choices.h"
#include "support/equality_cases.h"
#include "support/mpi_test.h"
#include "support/told_observation.h"
#include "support/whole_product.h"

namespace trireme::testing {
namespace {

constexpr double kTolerance = 1e-5;  // relative, fp32

constexpr std::array kRules = {"adamw", "lion", "muon",      "muon by heads", "sgd",
                               "lamb",  "lars", "adafactor", "schedule_free"};

// Every grid, with each pair of the other options' values in some case; update rules in turn.
std::vector<EqualityCase> cases(int ranks) {
  std::vector<EqualityCase> all;
  int number = 0;
  for (const GridShape& grid : factorizations(ranks)) {
    // Rows of an orthogonal array over (family, tied, schedule, sequence parallel): a grid takes
    // two of its four, the next grid the other two. From three ranks on it takes one, for speed.
    for (int bits = 0; bits < 16; ++bits) {
      const bool llama = bits & 1, tied = bits & 2, gpipe = bits & 4, sequence = bits & 8;
      const int row = (llama ? 1 : 0) + (tied ? 2 : 0);
      const bool in_turn = ranks > 2 ? row == number % 4 : row / 2 == number % 2;
      const bool in_cover = gpipe == (llama != tied) && sequence == llama && in_turn;
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
    return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", test.choices, test.model.width,
                       test.model.kv_heads, test.model.layers, test.model.tied,
                       test.model.biases.qkv, test.micro_batches, name_of(test.compute),
                       name_of(test.model.logits), fmt::join(test.frozen.patterns(), ","),
                       test.rule);
  }

  Runtime& runtime_ = trireme::testing::runtime();
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid alone_{runtime_, {1, 1, 1}, {runtime_.rank()}};
  std::map<std::string, Observed> references_;
  double largest_gradient_ = 0.0, largest_weight_ = 0.0, largest_loss_ = 0.0, largest_zero_ = 0.0;
  std::string where_gradient_, where_weight_;

  void check_losses(const Observed& expected, const Observed& observed, const EqualityCase& test) {
    const double tolerance = tolerances_in(test.compute, test.block_scaled).loss;
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
                zero ? tolerances_in(test.compute, test.block_scaled).zero : tolerance)
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
      const Tolerances limits = tolerances_in(test.compute, test.block_scaled);
      check_parts(expected.gradients, observed.gradients, test, "gradient", limits.gradient,
                  largest_gradient_, where_gradient_);
      check_parts(expected.weights, observed.weights, test, "weight after the SGD steps",
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
      if (compute == DType::kBF16 && chosen.size() % 2 == 0) {
        chosen.back().model.logits = DType::kBF16;
      }
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

// Grids in turn, with families, tying and the type of the logits in turn.
TEST_F(Equality, EveryGridFollowsOneRankInBf16) {
  check_rounding_type(DType::kBF16);
}

TEST_F(Equality, EveryGridFollowsOneRankInFp16) {
  check_rounding_type(DType::kF16);
}

// Products of blocks in e4m3, where tensor ranks have their own tiles and sums.
TEST_F(Equality, BlocksInFp8FollowOneRank) {
  std::vector<EqualityCase> chosen;
  for (const GridShape& grid : factorizations(runtime_.size())) {
    if (grid[Axis::kTensor] != 2 || grid.ranks() % 3 == 0 || grid.extent(kDataAxes) > 2) continue;
    if (!whole_product() && grid.ranks() > 4) continue;
    EqualityCase test = scaled_case(grid, chosen.size() % 2 == 0);
    test.sequence_parallel = chosen.size() % 2 == 0;
    test.micro_batches = 4;
    test.steps = 2;
    chosen.push_back(test);
  }
  check_all(chosen, "fp8");
  // It is in use, and what one rank computes is near what it computes in bf16.
  double least = 1.0, most = 0.0;
  for (EqualityCase test : chosen) {
    const LocalParts& scaled = reference(test).gradients;
    test.block_scaled = false;
    test.choices = "bf16 beside fp8";
    train_references({test});
    for (const Deviation& deviation : compare(reference(test).gradients, scaled, alone_.world())) {
      if (zero_in_exact_arithmetic(deviation.name, test.model)) continue;
      most = std::max(most, deviation.relative);
      if (deviation.name.ends_with("output.weight")) least = std::min(least, deviation.relative);
    }
    EXPECT_GT(least, 1.0 / 256);
    EXPECT_LT(most, 1.0 / 4);
  }
  if (runtime_.rank() != 0 || chosen.empty()) return;
  print_line(fmt::format("fp8 on one rank against bf16: gradient {:.1e}", most));
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

// A comparison that cannot fail would show nothing: what one rank adds to one parameter's gradient
// is scaled before the reductions over ranks. That parameter must be named, alone, and deviate by
// what the rank's contribution was.
TEST_F(Equality, NamesAWrongGradient) {
  Communicator& world = runtime_.world();
  const EqualityCase test = base_case(most_dimensions(runtime_.size()), false, true);
  EqualityCase alone = test;
  alone.grid = {1, 1, 1};
  const LocalParts expected = gradients_alone(ctx_, alone_, alone, runtime_.world());
  const ProcessGrid grid(runtime_, test.grid);
  GradientObserver observer(ctx_, grid, test);
  check_parts(expected, observer.gradients(), test, "gradient", kTolerance, largest_gradient_,
              where_gradient_);
  const std::map<std::string, double> contributions = observer.contributions();
  int number = 0;
  for (const auto& [name, whole] : expected) {
    if (zero_in_exact_arithmetic(name, test.model)) continue;
    // The cover takes all of them on two ranks, else every fifth one: of each kind in some block.
    if (!whole_product() && runtime_.size() != 2 && ++number % 5 != 0) continue;
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
