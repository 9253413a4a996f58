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
