// Sums over ranks in few bits, beside the same algorithm in double on one rank.
#include "trireme/parallel/compressed_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/philox.h"
#include "trireme/comm/dry_rank.h"
#include "trireme/comm/reduce.h"
#include "trireme/tensor/copy.h"

#include "support/mpi_test.h"
#include "support/plain_quantize.h"

namespace trireme::testing {
namespace {

using parallel::CompressedSum;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;

constexpr int kBits[] = {16, 8, 4, 2};

// The term of a rank in a step. So few bits, and weights that are powers of two, leave no sum or
// difference to be rounded: the reference in double is met to the bit.
Floats term(int rank, int step, std::int64_t n) {
  Floats x(static_cast<std::size_t>(n));
  philox_normals(philox_key(static_cast<std::uint64_t>(100 * step + rank), "term"), 0, x);
  for (float& value : x) value = std::nearbyintf(value * 1024.0f) / 1024.0f;
  return x;
}
float weight_of(int rank) {
  return std::ldexp(0.5f, rank);
}

Tensor tensor_of(Floats& x) {
  return Tensor::wrap(std::span(x));
}

void quantize(int bits, Doubles& v, Doubles& kept) {
  for (std::size_t first = 0; first < v.size(); first += 256) {
    quantize_block(bits, v, kept, first, std::min(v.size(), first + 256));
  }
}

// All ranks at once.
class Plain {
 public:
  Plain(int bits, std::int64_t n, int ranks)
      : bits_(bits),
        kept_(static_cast<std::size_t>(ranks), Doubles(static_cast<std::size_t>(n))),
        kept_of_result_(static_cast<std::size_t>(n)) {}

  Doubles add(int step) {
    Doubles sum(kept_of_result_.size(), 0.0);
    for (std::size_t rank = 0; rank < kept_.size(); ++rank) {
      const int number = static_cast<int>(rank);
      const Floats x = term(number, step, static_cast<std::int64_t>(sum.size()));
      Doubles v(x.begin(), x.end());
      for (double& value : v) value *= static_cast<double>(weight_of(number));
      if (kept_.size() > 1) quantize(bits_, v, kept_[rank]);
      for (std::size_t i = 0; i < v.size(); ++i) sum[i] += v[i];
    }
    if (kept_.size() > 1) quantize(bits_, sum, kept_of_result_);
    return sum;
  }
  const Doubles& kept(int rank) const { return kept_[static_cast<std::size_t>(rank)]; }
  const Doubles& kept_of_result() const { return kept_of_result_; }

 private:
  int bits_;
  std::vector<Doubles> kept_;
  Doubles kept_of_result_;
};

Doubles widened(std::span<const float> x) {
  return {x.begin(), x.end()};
}

void expect_equal_on_all_ranks(Floats x) {
  Floats of_first = x;
  runtime().world().broadcast(Stream(), tensor_of(of_first), 0).wait_host();
  EXPECT_EQ(std::memcmp(x.data(), of_first.data(), x.size() * sizeof(float)), 0);
}

class CompressedSums : public ::testing::Test {
 protected:
  int rank() const { return world.rank(); }
  int ranks() const { return world.size(); }

  Communicator& world = runtime().world();
  ops::Context ctx = ops::make_cpu_context(1);
};

TEST_F(CompressedSums, AreThoseOfAPlainReference) {
  for (const int bits : kBits) {
    for (const std::int64_t n : {1, 3, 257, 1000, 3000}) {
      const std::string what = std::to_string(bits) + " bits, " + std::to_string(n) + " elements";
      Plain plain(bits, n, ranks());
      CompressedSum sum(ctx, world, n, bits);
      for (int step = 0; step < 4; ++step) {
        Floats x = term(rank(), step, n);
        sum.add(ctx, tensor_of(x), weight_of(rank()));
        EXPECT_EQ(widened(x), plain.add(step)) << what;
        expect_equal_on_all_ranks(x);
      }
      EXPECT_EQ(sum.kept_of_term().defined(), ranks() > 1);
      if (ranks() == 1) continue;
      EXPECT_EQ(widened(sum.kept_of_term().span<float>()), plain.kept(rank())) << what;
      const Doubles owned = widened(sum.kept_of_result().span<float>());
      Doubles expected;
      for (const FlatRange& range : sum.owned()) {
        const auto from = plain.kept_of_result().begin();
        expected.insert(expected.end(), from + range.begin, from + range.end);
      }
      EXPECT_EQ(owned, expected) << what;
    }
  }
}

// The owners' parts are all elements, once.
TEST_F(CompressedSums, HaveAnOwnerForEachElement) {
  for (const std::int64_t n : {1, 256, 700, 5000}) {
    const CompressedSum sum(ctx, world, n, 8);
    if (ranks() == 1) return;
    const std::int64_t owned = sum.kept_of_result().elements();
    const auto all = world.all_reduce_host(owned, ReduceOp::kSum);
    const auto end = world.all_reduce_host(owned > 0 ? sum.owned().back().end : 0, ReduceOp::kMax);
    EXPECT_EQ(all, n);
    EXPECT_EQ(end, n);
  }
}

TEST_F(CompressedSums, HaveTheSameBitsFromRunToRunAndWhereverTheyTurn) {
  constexpr std::int64_t kElements = 2000;
  for (const int bits : {32, 16, 8, 4, 2}) {
    CompressedSum one(ctx, world, kElements, bits), other(ctx, world, kElements, bits);
    for (int step = 0; step < 3; ++step) {
      Floats x = term(rank(), step, kElements), y = x;
      one.start(ctx, tensor_of(x));
      other.start(ctx, tensor_of(y));
      one.turn(ctx);
      other.finish(ctx);
      one.finish(ctx);
      EXPECT_EQ(x, y);
    }
  }
}

// A checkpoint writes what was kept.
TEST_F(CompressedSums, GoOnWithWhatWasKept) {
  constexpr std::int64_t kElements = 1500;
  for (const int bits : kBits) {
    CompressedSum one(ctx, world, kElements, bits), other(ctx, world, kElements, bits);
    for (int step = 0; step < 4; ++step) {
      if (step == 2 && ranks() > 1) {
        copy(one.kept_of_term(), other.kept_of_term(), ctx.stream);
        copy(one.kept_of_result(), other.kept_of_result(), ctx.stream);
      }
      Floats x = term(rank(), step, kElements), y = x;
      one.add(ctx, tensor_of(x));
      if (step < 2) continue;
      other.add(ctx, tensor_of(y));
      EXPECT_EQ(x, y);
    }
  }
}

TEST_F(CompressedSums, In32BitsAreTreeSums) {
  constexpr std::int64_t kElements = 1000;
  std::vector<Floats> terms;
  std::vector<const std::byte*> sources;
  for (int i = 0; i < ranks(); ++i) terms.push_back(term(i, 0, kElements));
  for (const Floats& x : terms) sources.push_back(reinterpret_cast<const std::byte*>(x.data()));
  Floats expected(kElements);
  reduce_tree(ReduceOp::kSum, DType::kF32, sources, reinterpret_cast<std::byte*>(expected.data()),
              kElements);
  Floats x = term(rank(), 0, kElements);
  CompressedSum sum(ctx, world, kElements, 32);
  sum.add(ctx, tensor_of(x));
  EXPECT_EQ(x, expected);
  EXPECT_FALSE(sum.kept_of_term().defined());
}

// The order is that of the tree: three terms that fp32 adds up otherwise from the right.
TEST_F(CompressedSums, AddAlongTheTree) {
  if (ranks() < 3) GTEST_SKIP() << "one order";
  Floats x(256, rank() == 0 ? 1.0f : 0x1p-24f), expected(256);
  std::vector<Floats> terms(static_cast<std::size_t>(ranks()), Floats(256, 0x1p-24f));
  terms[0] = Floats(256, 1.0f);
  std::vector<const std::byte*> sources;
  for (const Floats& y : terms) sources.push_back(reinterpret_cast<const std::byte*>(y.data()));
  reduce_tree(ReduceOp::kSum, DType::kF32, sources, reinterpret_cast<std::byte*>(expected.data()),
              256);
  CompressedSum sum(ctx, world, 256, 16);
  sum.add(ctx, tensor_of(x));
  // What bf16 loses of the result is kept by its owner.
  if (sum.kept_of_result().elements() > 0) {
    EXPECT_EQ(x[0] + sum.kept_of_result().span<float>()[0], expected[0]);
  }
}

// With equal terms, the mean of k sums differs from the sum by what is kept, over k. With 2 bits
// that is at most 1.016 times the largest element of each term, and as much of the sum of codes,
// which are at most 2.04 times those elements. Without feedback the mean stays where it is.
TEST_F(CompressedSums, WithFeedbackTheMeanTendsToTheSum) {
  constexpr std::int64_t kElements = 600;
  constexpr int kTimes = 200;
  Doubles exact(kElements, 0.0);
  double largest = 0.0;  // of each term, added up
  for (int i = 0; i < ranks(); ++i) {
    double most = 0.0;
    const Floats x = term(i, 0, kElements);
    for (std::size_t j = 0; j < x.size(); ++j) {
      exact[j] += static_cast<double>(x[j]);
      most = std::max(most, std::abs(static_cast<double>(x[j])));
    }
    largest += most;
  }
  const auto error_of_mean = [&](int bits, bool feedback) {
    CompressedSum sum(ctx, world, kElements, bits, feedback);
    Doubles mean(kElements, 0.0);
    for (int i = 0; i < kTimes; ++i) {
      Floats x = term(rank(), 0, kElements);
      sum.add(ctx, tensor_of(x));
      for (std::size_t j = 0; j < x.size(); ++j) mean[j] += static_cast<double>(x[j]) / kTimes;
    }
    double error = 0.0;
    for (std::size_t j = 0; j < mean.size(); ++j) {
      error = std::max(error, std::abs(mean[j] - exact[j]));
    }
    return error;
  };
  for (const int bits : kBits) {
    const double error = error_of_mean(bits, true);
    EXPECT_LE(error, 3.1 * largest / kTimes + 1e-5) << bits;
  }
  if (ranks() == 1) return;
  EXPECT_GE(error_of_mean(2, false), 0.1 * largest);
}

// A block that is not finite on one rank is not finite on all, and the next sum is as if it had not
// been.
TEST_F(CompressedSums, ShowWhatIsNotFinite) {
  constexpr std::int64_t kElements = 1100;
  for (const int bits : kBits) {
    CompressedSum sum(ctx, world, kElements, bits);
    Floats x = term(rank(), 0, kElements);
    if (rank() == ranks() - 1) x[300] = std::numeric_limits<float>::quiet_NaN();
    if (rank() == 0) x[1099] = std::numeric_limits<float>::infinity();
    sum.add(ctx, tensor_of(x));
    EXPECT_TRUE(std::isnan(x[300]));
    EXPECT_FALSE(std::isfinite(x[1099]));
    EXPECT_TRUE(std::isfinite(x[0]) && std::isfinite(x[600]));
    x = term(rank(), 1, kElements);
    sum.add(ctx, tensor_of(x));
    EXPECT_TRUE(std::ranges::all_of(x, [](float value) { return std::isfinite(value); }));
  }
}

TEST_F(CompressedSums, OfNothingSendNothing) {
  for (const int bits : {32, 8}) {
    Floats none;
    Floats place(1);
    CompressedSum sum(ctx, world, 0, bits);
    sum.add(ctx, Tensor::wrap(place.data(), {0}, DType::kF32), 2.0f);
    EXPECT_EQ(sum.shape().message_bytes() + sum.shape().kept_bytes(), 0u);
  }
}

TEST_F(CompressedSums, RefuseWhatIsOutOfOrder) {
  Floats x(10, 1.0f), y(9);
  CompressedSum sum(ctx, world, 10, 8);
  EXPECT_THROW(sum.turn(ctx), InternalError);
  EXPECT_THROW(sum.finish(ctx), InternalError);
  EXPECT_THROW(sum.start(ctx, tensor_of(y)), InternalError);
  EXPECT_THROW(CompressedSum(ctx, world, 10, 3), InternalError);
  sum.start(ctx, tensor_of(x));
  EXPECT_THROW(sum.start(ctx, tensor_of(x)), InternalError);
  sum.finish(ctx);
}

// One of up to 9 ranks.
TEST_F(CompressedSums, SendAndHoldWhatTheirShapeSays) {
  for (int size = 1; size <= 9; ++size) {
    for (const int bits : {32, 16, 8, 4, 2}) {
      for (const std::int64_t n : {0, 5, 100000}) {
        ops::Context dry = ops::make_dry_context(1);
        const auto live = [&] { return dry.allocator->stats().total_live; };
        const std::size_t before = live();
        DryRank one({.rank = size / 2, .size = size});
        CompressedSum sum(dry, one.world(), n, bits);
        const CompressedSum::Shape shape = sum.shape();
        // Blocks are rounded up, those that come and go by an eighth at most.
        const auto holds = [&](std::size_t bytes, std::size_t expected) {
          EXPECT_GE(bytes, expected);
          EXPECT_LE(bytes, expected + expected / 8 + 64 * 12);
        };
        holds(live() - before, shape.kept_bytes());
        const Tensor x = dry.allocate({n}, DType::kF32);
        const std::size_t kept = live();
        sum.add(dry, x);
        EXPECT_EQ(live(), kept);
        holds(dry.allocator->stats().total_peak - kept, shape.working_bytes());
        std::size_t bytes = 0;
        for (const DryTraffic& traffic : one.take_traffic()) bytes += traffic.bytes;
        EXPECT_EQ(bytes, shape.message_bytes()) << size << " ranks, " << bits << " bits, " << n;
        if (n == 100000 && size == 4) {
          // A scale is a sixteenth of a bit, the last block of a part is not full.
          const double per_element = static_cast<double>(bytes) / static_cast<double>(2 * n);
          EXPECT_LE(per_element, bits == 32 ? 2.0 : (bits + 0.1) / 8);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::testing
