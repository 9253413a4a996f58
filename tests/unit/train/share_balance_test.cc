// When shares of data replicas change, and that no sample is lost or read twice then.
#include "trireme/train/share_balance.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "trireme/base/shares.h"

#include "train/planned_samples.h"

namespace trireme {
namespace {

using Shares = std::vector<int>;

// A window of replicas of two ranks each, of which the second is the faster one.
RankTable window_of(const Shares& shares, const std::vector<double>& seconds, double comm = 0.0) {
  RankTable table;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    for (const double part : {1.0, 0.5}) {
      RankTimes rank;
      rank.place = {static_cast<int>(i), part == 1.0 ? 0 : 1, 0};
      rank.micro_batches = shares[i];
      rank.compute_seconds = 0.75 * part * seconds[i] * shares[i];
      rank.wait_data_seconds = 0.25 * part * seconds[i] * shares[i];
      rank.comm_seconds = comm + static_cast<double>(i);  // the first waits least
      table.ranks.push_back(rank);
    }
  }
  return table;
}

TEST(ShareBalance, SharesChangeOnceThreeWindowsGain) {
  ShareBalance balance(8);
  const RankTable slow = window_of({4, 4, 4}, {0.1, 0.2, 0.2});
  for (int i = 0; i < 2; ++i) {
    balance.look(slow);
    EXPECT_FALSE(balance.change());
  }
  balance.look(slow);
  const auto change = balance.change();
  ASSERT_TRUE(change);
  EXPECT_EQ(change->shares, (Shares{6, 3, 3}));
  EXPECT_EQ(change->why,
            "batch.balance: shares of 6, 3, 3 micro-batches in place of 4, 4, 4: a micro-batch "
            "takes 100.0 ms to 200.0 ms, so a step of about 800.0 ms becomes one of 600.0 ms");
  // After it, nothing gains any more.
  balance.begin();
  for (int i = 0; i < 9; ++i) balance.look(window_of({6, 3, 3}, {0.1, 0.2, 0.2}));
  EXPECT_FALSE(balance.change());
  // The node is as fast as the others again.
  for (int i = 0; i < 3; ++i) balance.look(window_of({6, 3, 3}, {0.1, 0.1, 0.1}));
  ASSERT_TRUE(balance.change());
  EXPECT_EQ(balance.change()->shares, (Shares{4, 4, 4}));
}

TEST(ShareBalance, SpeedsThatWaverChangeNothing) {
  ShareBalance balance(16);
  const RankTable equal = window_of({8, 8}, {0.1, 0.1}), first = window_of({8, 8}, {0.2, 0.1}),
                  second = window_of({8, 8}, {0.1, 0.2});
  for (int i = 0; i < 6; ++i) {
    balance.look(first);
    balance.look(first);
    EXPECT_FALSE(balance.change());
    balance.look(equal);
    EXPECT_FALSE(balance.change());
  }
  // Each window gains, but not all of them together.
  for (const RankTable* window : {&first, &second, &first, &second}) balance.look(*window);
  EXPECT_FALSE(balance.change());
}

TEST(ShareBalance, GainsOfLessThanATwentiethAreLeft) {
  const auto change = [](const RankTable& window, int most = 64) {
    ShareBalance balance(most);
    for (int i = 0; i < ShareBalance::kWindows; ++i) balance.look(window);
    return balance.change().has_value();
  };
  EXPECT_FALSE(change(window_of({32, 32}, {0.1, 0.105})));
  EXPECT_TRUE(change(window_of({32, 32}, {0.1, 0.12})));
  EXPECT_FALSE(change(window_of({32, 32}, {0.1, 0.12}, 8.0)));  // steps are communication
  EXPECT_FALSE(change(window_of({1, 1}, {0.1, 0.2})));          // there is nothing to give away
  EXPECT_FALSE(change(window_of({4, 4}, {0.1, 0.2}), 4));       // nor memory
  EXPECT_FALSE(change(window_of({4, 4}, {0.1, 0.0})));          // it was not measured
}

TEST(PlannedSamples, EveryOneIsReadOnceAcrossAChangeOfShares) {
  constexpr std::int64_t kFirst = 15, kMicro = 2, kOfStep = 14;
  const auto even = parallel::WorkSplit::even(7, 3);
  const auto shares = parallel::WorkSplit::of_shares({4, 1, 2});
  std::vector<std::uint64_t> read;
  for (int replica = 0; replica < 3; ++replica) {
    std::int64_t done = 0;  // steps
    for (const auto& [work, steps] :
         {std::pair(even, 2), std::pair(shares, 3), std::pair(even, 1)}) {
      const std::int64_t begin = kFirst + done * kOfStep;
      const BatchPlan plan = planned_samples(work, replica,
                                             {.place = [=](std::int64_t i) { return begin + i; },
                                              .of_step = kOfStep,
                                              .micro = kMicro,
                                              .steps = steps});
      for (int step = 0; step < steps; ++step, ++done) {
        const auto samples = plan(static_cast<std::uint64_t>(step)).value();
        EXPECT_EQ(std::ssize(samples), work.count(replica) * kMicro);
        for (const std::uint64_t sample : samples) {
          EXPECT_EQ((static_cast<std::int64_t>(sample) - kFirst) / kOfStep, done);
        }
        read.insert(read.end(), samples.begin(), samples.end());
      }
      EXPECT_FALSE(plan(static_cast<std::uint64_t>(steps)));
    }
  }
  std::ranges::sort(read);
  std::vector<std::uint64_t> all(6 * kOfStep);
  std::iota(all.begin(), all.end(), kFirst);
  EXPECT_EQ(read, all);
}

}  // namespace
}  // namespace trireme
