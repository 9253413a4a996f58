// Trials of algorithms on ranks whose clocks differ.
#include "trireme/comm/algorithm_trials.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

// A communicator of several ranks whose clocks differ, and whose calls take what is told.
class AlgorithmTrialsTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kMicrosecond = 1000;
  static constexpr int kCalls = AlgorithmTrials::kRounds;

  // A call on all ranks. The slowest one begins `late` after the others, whose call takes longer by
  // that. Returns the algorithm, which must be the same on all.
  Algorithm call(std::size_t bytes, const std::map<Algorithm, std::int64_t>& microseconds,
                 std::int64_t late = 0) {
    std::set<Algorithm> taken;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto [algorithm, call] =
          ranks_[rank].next(Collective::kAllReduce, bytes, Algorithm::kPairwise);
      taken.insert(algorithm);
      if (call.slot < 0) continue;
      const std::int64_t begin = now_ + (rank == 0 ? late * kMicrosecond : 0) - clocks_[rank];
      const std::int64_t end =
          now_ + (late + microseconds.at(algorithm)) * kMicrosecond - clocks_[rank];
      ranks_[rank].took(call, begin, end);
    }
    now_ += 1'000'000;
    EXPECT_EQ(taken.size(), 1u);
    return *taken.begin();
  }
  std::vector<TrialOutcome> outcomes() {
    std::vector<std::int64_t> all;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto mine = ranks_[rank].times(clocks_[rank]);
      if (all.empty()) all = mine;
      for (std::size_t i = 0; i < mine.size(); ++i) all[i] = std::max(all[i], mine[i]);
    }
    under_way_ = all.back();
    return ranks_.back().judge(all);
  }
  void begin(const std::vector<AlgorithmTrial>& trials) {
    for (AlgorithmTrials& rank : ranks_) rank.begin(trials_from_text(trials_to_text(trials)));
  }

  std::vector<AlgorithmTrials> ranks_ = std::vector<AlgorithmTrials>(3);
  std::vector<std::int64_t> clocks_ = {0, 5'000'000, -70'000};  // behind that of rank 0
  std::int64_t now_ = 100'000'000;
  std::int64_t under_way_ = 0;
};

TEST_F(AlgorithmTrialsTest, TheFastestOneIsTakenWhateverTheClocksAndTheWaits) {
  begin({{Collective::kAllReduce,
          4096,
          {Algorithm::kPairwise, Algorithm::kHalving, Algorithm::kTiered}}});
  const std::map<Algorithm, std::int64_t> takes = {
      {Algorithm::kPairwise, 50}, {Algorithm::kHalving, 40}, {Algorithm::kTiered, 45}};
  std::map<Algorithm, int> calls;
  std::set<std::pair<Algorithm, Algorithm>> neighbours;
  std::optional<Algorithm> before;
  for (int i = 0; i < 3 * kCalls; ++i) {
    EXPECT_FALSE(ranks_[0].all_called());
    EXPECT_EQ(call(100, takes), Algorithm::kPairwise);  // another size
    // A rank that comes late is no fault of the algorithm that it comes late for.
    const Algorithm taken = call(4096, takes, i % 2 == 0 ? 300 : 0);
    ++calls[taken];
    if (before) neighbours.emplace(*before, taken);
    before = taken;
  }
  EXPECT_EQ(calls, (std::map<Algorithm, int>{{Algorithm::kPairwise, kCalls},
                                             {Algorithm::kHalving, kCalls},
                                             {Algorithm::kTiered, kCalls}}));
  EXPECT_GT(neighbours.size(), 3u);
  EXPECT_TRUE(ranks_[0].all_called());
  EXPECT_EQ(call(4096, takes), Algorithm::kPairwise);  // until the ranks have agreed
  const auto found = outcomes();
  EXPECT_EQ(under_way_, 0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].chosen, Algorithm::kHalving);
  const std::vector<double> expected = {50e-6, 40e-6, 45e-6};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[0].seconds[i], expected[i], 1e-9);
}

TEST_F(AlgorithmTrialsTest, TheTablesAlgorithmStaysWithoutAClearGain) {
  begin({{Collective::kAllReduce, 64, {Algorithm::kPairwise, Algorithm::kHalving}}});
  for (int i = 0; i < 2 * kCalls; ++i) {
    // The first round does not count.
    call(64, {{Algorithm::kPairwise, i < 2 ? 9000 : 100}, {Algorithm::kHalving, 96}});
  }
  ASSERT_EQ(outcomes().size(), 1u);
  EXPECT_EQ(outcomes()[0].chosen, Algorithm::kPairwise);
}

TEST_F(AlgorithmTrialsTest, WhatIsNotMeasuredEverywhereIsSaid) {
  begin({{Collective::kAllReduce, 64, {Algorithm::kPairwise, Algorithm::kHalving}},
         {Collective::kAllReduce, 128, {Algorithm::kPairwise, Algorithm::kHalving}}});
  for (int i = 0; i < 2 * kCalls - 1; ++i) {
    call(64, {{Algorithm::kPairwise, 10}, {Algorithm::kHalving, 20}});
  }
  call(128, {{Algorithm::kPairwise, 10}, {Algorithm::kHalving, 20}});
  std::vector<AlgorithmTrials::Call> last;
  for (AlgorithmTrials& rank : ranks_) {
    last.push_back(rank.next(Collective::kAllReduce, 64, Algorithm::kPairwise).call);
  }
  ranks_[0].took(last[0], 1, 2);
  for (AlgorithmTrials& rank : ranks_) rank.stop();
  EXPECT_EQ(ranks_[1].next(Collective::kAllReduce, 128, Algorithm::kPairwise).call.slot, -1);
  outcomes();
  EXPECT_EQ(under_way_, 1);
  ranks_[1].took(last[1], 1, 2);  // also after the end of the trials
  ranks_[2].took(last[2], 1, 2);
  EXPECT_EQ(outcomes().size(), 1u);  // not of 128 bytes, which were called once
  EXPECT_EQ(under_way_, 0);
}

TEST_F(AlgorithmTrialsTest, WatchingFindsWhatTakesTheMostTime) {
  AlgorithmTrials& rank = ranks_[0];
  rank.watch();
  const auto once = [&](std::size_t bytes, std::int64_t ns) {
    const auto [algorithm, call] = rank.next(Collective::kAllGather, bytes, Algorithm::kTiered);
    EXPECT_EQ(algorithm, Algorithm::kTiered);
    rank.took(call, 1000, 1000 + ns);
  };
  once(10, 5000);
  once(20, 3000);
  once(20, 3000);
  rank.next(Collective::kAllGather, 30, Algorithm::kTiered);  // not at its end yet
  const auto carried = rank.carried();
  ASSERT_EQ(carried.size(), 3u);
  EXPECT_EQ(carried[0].bytes, 20u);
  EXPECT_EQ(carried[0].calls, 2);
  EXPECT_NEAR(carried[0].seconds, 6e-6, 1e-12);
  EXPECT_EQ(carried[1].bytes, 10u);
  EXPECT_EQ(carried[2].seconds, 0.0);
}

}  // namespace
}  // namespace trireme
