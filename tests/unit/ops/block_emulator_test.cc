// The emulator of kernels: right ones give the right result, and each kind of wrong one is caught.
#include "support/block_emulator.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using emulator::KernelError;

constexpr unsigned kThreads = 96;
constexpr unsigned kBlocks = 5;

void run(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  emulator::run_grid(grid, block, 0, kernel);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const KernelError& error) {
    return error.what();
  }
  return "no error";
}

class BlockEmulator : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { emulator::set_order(GetParam()); }
  void TearDown() override { emulator::set_order(0); }
};

// Sums each block's part of x; `barrier` between writing and reading shared memory or not.
void block_sum(const float* x, float* y, bool barrier) {
  TRIREME_SHARED(float, parts, kThreads / 32);
  float sum = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  if (barrier) __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = parts[0] + parts[1] + parts[2];
}

std::vector<float> block_sums(bool barrier) {
  std::vector<float> x(kThreads * kBlocks), y(kBlocks, -1.0f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
  run(kBlocks, kThreads, [&] { block_sum(x.data(), y.data(), barrier); });
  return y;
}

TEST_P(BlockEmulator, SumsWithBarrierAndShuffles) {
  const std::vector<float> y = block_sums(true);
  for (unsigned b = 0; b < kBlocks; ++b) {
    float expected = 0.0f;
    for (unsigned i = 0; i < kThreads; ++i) expected += static_cast<float>((b * kThreads + i) % 7);
    EXPECT_EQ(y[b], expected);
  }
}

TEST_P(BlockEmulator, MissingBarrierShows) {
  EXPECT_NE(block_sums(false), block_sums(true));
}

TEST_P(BlockEmulator, IndicesCoverTheGrid) {
  std::vector<int> seen(2 * 3 * 2 * 4 * 2 * 3, 0);
  run(dim3(2, 3, 2), dim3(4, 2, 3), [&] {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    ++seen[block * 24 + thread];
    __syncthreads();  // the same thread afterwards
    seen[block * 24 + (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x] += 10;
  });
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 11));
}

TEST_P(BlockEmulator, ShufflesVotesAndReductions) {
  run(1, 64, [] {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    EXPECT_EQ(__shfl_sync(~0u, lane, 5), 5);
    EXPECT_EQ(__shfl_sync(~0u, lane, 3, 8), lane / 8 * 8 + 3);
    EXPECT_EQ(__shfl_xor_sync(~0u, 2.0 * lane, 1), 2.0 * (lane ^ 1));
    EXPECT_EQ(__shfl_down_sync(~0u, lane, 4), lane < 28 ? lane + 4 : lane);
    EXPECT_EQ(__shfl_up_sync(~0u, lane, 4, 16), lane % 16 < 4 ? lane : lane - 4);
    EXPECT_EQ(__ballot_sync(~0u, lane < 3), 7u);
    EXPECT_EQ(__any_sync(~0u, lane == 9), 1);
    EXPECT_EQ(__any_sync(~0u, 0), 0);
    EXPECT_EQ(__all_sync(~0u, lane != 9), 0);
    EXPECT_EQ(__all_sync(~0u, 1), 1);
    EXPECT_EQ(__reduce_add_sync(~0u, static_cast<unsigned>(lane)), 496u);
    EXPECT_EQ(__reduce_max_sync(~0u, static_cast<unsigned>(lane)), 31u);
    EXPECT_EQ(__reduce_min_sync(~0u, static_cast<unsigned>(lane) + 2), 2u);
    EXPECT_EQ(__syncthreads_count(threadIdx.x < 40), 40);
    EXPECT_EQ(__syncthreads_or(threadIdx.x == 63), 1);
    EXPECT_EQ(__syncthreads_and(threadIdx.x != 63), 0);
    // Halves of a warp on their own.
    const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
    EXPECT_EQ(__shfl_xor_sync(half, lane, 8), lane ^ 8);
    __syncwarp(half);
  });
}

// Where the elements are, by the formulas of PTX's manual for mma.m16n8k16: element i of a lane.
struct Place {
  unsigned row, column;
};
Place place_of_a(unsigned lane, unsigned i) {
  const bool first_half = i < 2 || (4 <= i && i < 6);
  return {first_half ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Place place_of_b(unsigned lane, unsigned i) {
  return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane / 4};
}
Place place_of_c(unsigned lane, unsigned i) {
  return {i < 2 ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1)};
}
float small_number(std::uint16_t bits) {
  return static_cast<float>(bits) - 20.0f;
}

TEST_P(BlockEmulator, TensorCoresMultiply) {
  std::uint16_t a[16][16], b[16][8];
  float c[2][16][8] = {};  // of two warps
  for (unsigned i = 0; i < 16; ++i) {
    for (unsigned k = 0; k < 16; ++k) a[i][k] = static_cast<std::uint16_t>((i * 16 + k) * 7 % 41);
    for (unsigned n = 0; n < 8; ++n) b[i][n] = static_cast<std::uint16_t>((i * 8 + n) * 11 % 37);
  }
  run(1, 64, [&] {
    const unsigned lane = threadIdx.x % 32;
    unsigned left[4] = {}, right[2] = {};
    for (unsigned i = 0; i < 8; ++i) {
      const Place at = place_of_a(lane, i);
      left[i / 2] |= static_cast<unsigned>(a[at.row][at.column]) << 16 * (i % 2);
    }
    for (unsigned i = 0; i < 4; ++i) {
      const Place at = place_of_b(lane, i);
      right[i / 2] |= static_cast<unsigned>(b[at.row][at.column]) << 16 * (i % 2);
    }
    float sums[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    emulator::multiply_add(sums, left, right, small_number);
    for (unsigned i = 0; i < 4; ++i) {
      const Place at = place_of_c(lane, i);
      c[threadIdx.x / 32][at.row][at.column] = sums[i] - static_cast<float>(i + 1);
    }
  });
  for (const auto& of_warp : c) {
    for (unsigned i = 0; i < 16; ++i) {
      for (unsigned n = 0; n < 8; ++n) {
        float expected = 0.0f;
        for (unsigned k = 0; k < 16; ++k) {
          expected += small_number(a[i][k]) * small_number(b[k][n]);
        }
        EXPECT_EQ(of_warp[i][n], expected) << i << ", " << n;
      }
    }
  }
}

TEST_P(BlockEmulator, TensorCoresLoadMatrices) {
  alignas(16) std::uint16_t rows[32][16];  // four matrices, each row followed by what is not read
  for (unsigned i = 0; i < 32; ++i) {
    for (unsigned k = 0; k < 16; ++k) rows[i][k] = static_cast<std::uint16_t>(i * 100 + k);
  }
  run(1, 32, [&] {
    const unsigned lane = threadIdx.x;
    unsigned plain[4], transposed[4];
    emulator::load_matrices(plain, rows[lane], false);
    emulator::load_matrices(transposed, rows[lane], true);
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned g = lane / 4, t = lane % 4 * 2;
      EXPECT_EQ(plain[m], (m * 8 + g) * 100 + t + (((m * 8 + g) * 100 + t + 1) << 16));
      EXPECT_EQ(transposed[m], (m * 8 + t) * 100 + g + (((m * 8 + t + 1) * 100 + g) << 16));
    }
  });
}

TEST_P(BlockEmulator, TensorCoresWantAWholeWarpAndWholeRows) {
  alignas(16) std::uint16_t rows[40] = {};
  unsigned to[4];
  EXPECT_EQ(message_of([&] { run(1, 48, [&] { emulator::load_matrices(to, rows, false); }); }),
            "tensor cores need a whole warp");
  EXPECT_EQ(message_of([&] { run(1, 32, [&] { emulator::load_matrices(to, rows + 1, false); }); }),
            "a row of a matrix is not at a multiple of 16 bytes");
  EXPECT_NE(message_of([&] {
              run(1, 32, [&] {
                if (threadIdx.x != 3) emulator::load_matrices(to, rows, false);
              });
            }).find("wait at tensor cores"),
            std::string::npos);
}

TEST_P(BlockEmulator, UninitialisedSharedMemoryIsNotANumber) {
  std::vector<float> y(32);
  emulator::run_grid(2, 32, 32 * sizeof(float), [&] {
    TRIREME_SHARED(float, fixed, 32);
    TRIREME_DYNAMIC_SHARED(float, dynamic);
    y[threadIdx.x] = threadIdx.x < 16 ? fixed[threadIdx.x] : dynamic[threadIdx.x];
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 1.0f;  // the next block must not see it
  });
  for (const float value : y) EXPECT_TRUE(std::isnan(value));
}

TEST_P(BlockEmulator, DivergentBarrierIsReported) {
  const auto message = message_of([] {
    run(1, kThreads, [] {
      if (threadIdx.x == 17) return;
      __syncthreads();
    });
  });
  EXPECT_EQ(message, "a block of 96 threads is stuck: 1 have returned, 95 wait at __syncthreads");
}

TEST_P(BlockEmulator, DivergentShuffleIsReported) {
  const auto message = message_of([] {
    run(1, 32, [] {
      if (threadIdx.x >= 16) return;
      __shfl_xor_sync(~0u, 1.0f, 1);
    });
  });
  EXPECT_EQ(message, "a block of 32 threads is stuck: 16 have returned, 16 wait at a shuffle");
}

TEST_P(BlockEmulator, ShuffleFromALaneThatTakesNoPart) {
  const auto outside = message_of([] {
    run(1, 32, [] {
      if (threadIdx.x < 16) __shfl_sync(0xffffu, 1.0f, 20);
    });
  });
  EXPECT_EQ(outside, "a shuffle reads lane 20, which takes no part in it");
  const auto not_in_mask = message_of([] { run(1, 32, [] { __syncwarp(0xffffu); }); });
  EXPECT_NE(not_in_mask.find("whose mask leaves it out"), std::string::npos) << not_in_mask;
}

TEST_P(BlockEmulator, DifferentOperationsOfOneWarpAreStuck) {
  EXPECT_THROW(run(1, 32,
                   [] {
                     if (threadIdx.x % 2 == 0) {
                       __ballot_sync(~0u, 1);
                     } else {
                       __syncwarp();
                     }
                   }),
               KernelError);
}

TEST_P(BlockEmulator, WhatAThreadThrowsComesOut) {
  EXPECT_THROW(run(3, 32, [] { throw std::out_of_range("wrong"); }), std::out_of_range);
  // and the next kernel runs as if nothing had been
  EXPECT_EQ(block_sums(true), block_sums(true));
}

TEST_P(BlockEmulator, RefusesLaunchesThatNoDeviceTakes) {
  EXPECT_THROW(run(1, 1025, [] {}), KernelError);
  EXPECT_THROW(run(0, 32, [] {}), KernelError);
  EXPECT_THROW(run(dim3(1, 65536), 32, [] {}), KernelError);
  EXPECT_THROW(__syncthreads(), KernelError);
}

TEST_P(BlockEmulator, MoreSharedMemoryThanGpusHave) {
  const auto declares = [](std::size_t bytes) {
    return [bytes] {
      TRIREME_SHARED(char, array, bytes);
      array[0] = 1;
    };
  };
  EXPECT_EQ(message_of([&] { emulator::run_grid(1, 1, 51 << 10, declares(48 << 10)); }),
            "no error");
  EXPECT_EQ(message_of([&] { emulator::run_grid(1, 1, (51 << 10) + 1, declares(48 << 10)); }),
            "a block takes 49152 + 52225 bytes of shared memory");
  EXPECT_EQ(message_of([&] { emulator::run_grid(1, 1, 0, declares((48 << 10) + 1)); }),
            "a block takes 49153 + 0 bytes of shared memory");
}

INSTANTIATE_TEST_SUITE_P(Orders, BlockEmulator, ::testing::Values(0, 1, 2));

TEST(BlockEmulatorOrder, SeedsGiveOtherOrders) {
  const auto first_threads = [](std::uint64_t seed) {
    emulator::set_order(seed);
    std::vector<unsigned> order;
    run(2, 64, [&] { order.push_back(blockIdx.x * 64 + threadIdx.x); });
    emulator::set_order(0);
    return order;
  };
  const std::vector<unsigned> in_order = first_threads(0);
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  EXPECT_NE(first_threads(1), first_threads(2));
}

// Only where an order is drawn: at once or late, as on a GPU.
// Warps that no barrier joins drift apart, by more than one step of each.
TEST(BlockEmulatorOrder, AWarpFallsFarBehind) {
  int furthest = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    emulator::set_order(seed);
    run(1, 64, [&] {
      TRIREME_SHARED(int, steps, 2);
      steps[threadIdx.x / 32] = 0;
      __syncthreads();
      for (int step = 1; step <= 20; ++step) {
        __syncwarp();
        steps[threadIdx.x / 32] = step;
        furthest = std::max(furthest, step - steps[1 - threadIdx.x / 32]);
      }
    });
  }
  emulator::set_order(0);
  EXPECT_GT(furthest, 4);
}

TEST(BlockEmulatorOrder, ACopyThatIsNotWaitedForMayComeTooLate) {
  const float from[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  const auto wrong = [&](std::uint64_t seed, bool waits) {
    emulator::set_order(seed);
    int count = 0;
    run(1, 64, [&] {
      TRIREME_SHARED(float, shared, 64 * 4);
      float* const mine = shared + threadIdx.x * 4;
      emulator::start_copy(mine, from, sizeof from);
      if (waits) emulator::wait_for_copies();
      count += std::equal(mine, mine + 4, from) ? 0 : 1;
    });
    emulator::set_order(0);
    return count;
  };
  for (const std::uint64_t seed : {0, 1, 2}) EXPECT_EQ(wrong(seed, true), 0);
  EXPECT_EQ(wrong(0, false), 0);
  EXPECT_GT(wrong(1, false), 16);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(BlockEmulatorDeathTest, OutOfBoundsIsSeenByTheSanitizer) {
  std::vector<float> x(32);
  EXPECT_DEATH(run(1, 64, [&] { x.data()[threadIdx.x] = 1.0f; }), "heap-buffer-overflow");
  EXPECT_DEATH(run(1, 64,
                   [&] {
                     TRIREME_SHARED(float, shared, 32);
                     shared[threadIdx.x] = 1.0f;
                     __syncthreads();
                   }),
               "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace trireme
