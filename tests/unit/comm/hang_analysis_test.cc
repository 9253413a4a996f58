// Whom the watchdog blames, in scripted hangs.
#include "comm/faults/hang_analysis.h"

#include <algorithm>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr double kTimeout = 10.0;
constexpr int kWorld = 0, kTensor = 7, kPipeline = 9;

// Ranks begin and end operations in the order of the calls; the reports are what they say then.
class Script {
 public:
  explicit Script(int ranks, int ranks_of_host = 2)
      : reports_(static_cast<std::size_t>(ranks), RankReport()) {
    for (int rank = 0; rank < ranks; ++rank) {
      hosts_.push_back(fmt::format("n{}", rank / ranks_of_host));
    }
  }

  void begin(int rank, const std::string& name, int lane, const std::vector<int>& members,
             double age_s = kTimeout + 1, bool library = false) {
    start(rank, {lane | (library ? kLibraryLaneBit : 0)}, name, members, age_s, library);
  }
  void call(int rank, const std::string& name, const std::vector<int>& members) {
    begin(rank, name, kWorld, members, kTimeout + 1, /*library=*/true);
  }
  void send(int rank, int peer) {
    start(rank, {kPipeline, peer, true}, "send", {}, kTimeout, false);
  }
  void receive(int rank, int peer) {
    start(rank, {kPipeline, peer, false}, "receive", {}, kTimeout, false);
  }
  void end(int rank) { report(rank).waiting.pop_back(); }
  void silent(int rank) { reports_[static_cast<std::size_t>(rank)].reset(); }
  void sleeps(int rank) { report(rank).main_sleeps = true; }

  HangVerdict verdict() const {
    // Each report as it arrives at the rank that judges.
    std::vector<std::optional<RankReport>> received;
    for (const auto& report : reports_) {
      const int world = static_cast<int>(reports_.size());
      received.push_back(report ? decode_report(encode(*report), world) : std::nullopt);
    }
    return analyse_hang(received, hosts_, kTimeout);
  }

 private:
  RankReport& report(int rank) { return *reports_[static_cast<std::size_t>(rank)]; }

  void start(int rank, const LaneKey& key, const std::string& name, const std::vector<int>& members,
             double age_s, bool library) {
    auto& begun = report(rank).begun;
    auto entry = std::ranges::find(begun, key, &std::pair<LaneKey, std::uint64_t>::first);
    if (entry == begun.end()) entry = begun.insert(begun.end(), {key, 0});
    ++entry->second;
    const std::string communicator = (key.lane & ~kLibraryLaneBit) == kWorld ? "world"
                                     : key.lane == kTensor                   ? "tensor"
                                                                             : "pipeline";
    report(rank).waiting.push_back({.key = key,
                                    .library = library,
                                    .name = name,
                                    .communicator = communicator,
                                    .members = members,
                                    .sequence = entry->second,
                                    .age_s = age_s});
  }

  std::vector<std::optional<RankReport>> reports_;
  std::vector<std::string> hosts_;
};

using Ranks = std::vector<int>;
const Ranks kFour = {0, 1, 2, 3};

bool says(const HangVerdict& verdict, const std::string& words) {
  return verdict.line.find(words) != std::string::npos;
}

TEST(HangAnalysis, ARankThatNeverCame) {
  Script script(4);
  for (const int rank : {0, 1, 3}) script.begin(rank, "all_reduce", kWorld, kFour);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({2}));
  EXPECT_EQ(verdict.line,
            "no progress for 10 s: rank 2 (n1) waits for nothing, missing from all_reduce 1 of "
            "world, where 3 ranks wait for it");
}

TEST(HangAnalysis, ARankThatIsOneOperationBehind) {
  Script script(4);
  for (const int rank : kFour) script.begin(rank, "all_reduce", kWorld, kFour);
  for (const int rank : kFour) script.end(rank);
  for (const int rank : {0, 2, 3}) script.begin(rank, "barrier", kWorld, kFour);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({1}));
  EXPECT_TRUE(says(verdict, "missing from barrier 2 of world")) << verdict.line;
}

TEST(HangAnalysis, ARankThatDoesNotAnswer) {
  Script script(4);
  for (const int rank : {0, 1, 2}) script.begin(rank, "all_reduce", kWorld, kFour);
  script.silent(3);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({3}));
  EXPECT_TRUE(says(verdict, "rank 3 (n1) does not answer")) << verdict.line;
}

TEST(HangAnalysis, VictimsOfVictimsAreSilent) {
  Script script(4);
  script.receive(0, 1);
  script.begin(1, "all_reduce", kTensor, {1, 2});
  script.begin(3, "barrier", kWorld, kFour, /*age_s=*/0.5);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({2}));
  EXPECT_TRUE(says(verdict, "all_reduce 1 of tensor")) << verdict.line;
}

TEST(HangAnalysis, AReceiveThatNobodySends) {
  Script script(4);
  script.receive(2, 0);
  for (const int rank : {0, 1, 3}) script.begin(rank, "barrier", kWorld, kFour);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({0, 2}));
  EXPECT_EQ(verdict.line,
            "no progress for 10 s: these wait for each other: rank 0 (n0) in barrier 1 of world, "
            "rank 2 (n1) in receive 1 from 0 of pipeline");
}

TEST(HangAnalysis, ASendMeetsTheReceiveOfTheSameNumber) {
  Script script(2);
  script.send(0, 1);
  script.receive(1, 0);
  script.end(0);
  script.end(1);
  script.send(0, 1);  // the second, which rank 1 does not receive
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({1}));
  EXPECT_TRUE(says(verdict, "missing from the receive for which 1 rank waits in send 2"))
      << verdict.line;
}

TEST(HangAnalysis, AMessageThatTheNetworkDoesNotCarry) {
  Script script(3);
  script.send(0, 1);
  script.receive(1, 0);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({0, 1}));
  EXPECT_TRUE(says(verdict, "send 1 to 1 of pipeline, which its peer has begun")) << verdict.line;
}

TEST(HangAnalysis, ACircleOfSends) {
  Script script(3);
  for (int rank = 0; rank < 3; ++rank) script.send(rank, (rank + 1) % 3);
  EXPECT_EQ(script.verdict().culprits, Ranks({0, 1, 2}));
}

TEST(HangAnalysis, ARankThatWaitsForItself) {
  Script script(2);
  script.receive(1, 1);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({1}));
  EXPECT_TRUE(says(verdict, "waits for itself")) << verdict.line;
}

TEST(HangAnalysis, ALibraryCallThatTheOthersHaveLeft) {
  Script script(4);
  for (const int rank : kFour) script.call(rank, "H5Dwrite", kFour);
  for (const int rank : {0, 2, 3}) script.end(rank);
  for (const int rank : {0, 2, 3}) script.begin(rank, "all_reduce", kWorld, kFour);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({1}));
  EXPECT_TRUE(says(verdict, "hangs inside H5Dwrite 1 of world")) << verdict.line;
}

TEST(HangAnalysis, ALibraryCallInWhichOneSleeps) {
  Script script(4);
  for (const int rank : kFour) script.call(rank, "H5Dwrite", kFour);
  script.sleeps(3);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({3}));
  EXPECT_TRUE(says(verdict, "in which 3 ranks wait for it")) << verdict.line;
}

TEST(HangAnalysis, ALibraryCallThatOneHasNotEntered) {
  Script script(4);
  for (const int rank : {0, 1, 2}) script.call(rank, "H5Fclose", kFour);
  script.sleeps(1);
  EXPECT_EQ(script.verdict().culprits, Ranks({3}));
}

TEST(HangAnalysis, ALibraryCallInWhichAllAreAlike) {
  Script script(4);
  for (const int rank : kFour) script.call(rank, "H5Dwrite", kFour);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, kFour);
  EXPECT_TRUE(says(verdict, "each hangs inside H5Dwrite")) << verdict.line;
}

TEST(HangAnalysis, TwoHangsAtOnce) {
  Script script(4);
  script.begin(0, "all_reduce", kTensor, {0, 1});
  script.begin(2, "all_reduce", kTensor, {2, 3});
  script.silent(3);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({1, 3}));
}

// Rank 3 computes; that rank 2 has just begun to wait for it is no fault.
TEST(HangAnalysis, AFreshWaitIsNoFault) {
  Script script(4);
  script.begin(0, "all_reduce", kTensor, {0, 1});
  script.begin(2, "all_reduce", kTensor, {2, 3}, /*age_s=*/0.1);
  EXPECT_EQ(script.verdict().culprits, Ranks({1}));
}

TEST(HangAnalysis, LongListsAreCut) {
  Script script(100);
  Ranks all;
  for (int rank = 0; rank < 100; ++rank) all.push_back(rank);
  script.begin(0, "barrier", kWorld, all);
  for (int rank = 1; rank < 100; ++rank) script.silent(rank);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits.size(), 99u);
  EXPECT_TRUE(says(verdict,
                   ": n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, n15, "
                   "n16, 33 more cannot be reached from n0 (ranks 2, 3,"))
      << verdict.line;
  EXPECT_TRUE(says(verdict, ", 17, 82 more), missing from")) << verdict.line;
  EXPECT_TRUE(says(verdict, "; rank 1 (n0) does not answer")) << verdict.line;
}

// A switch fails: each half hears of the other half nothing.
TEST(HangAnalysis, HostsThatCannotBeReached) {
  Script script(8);
  const Ranks all = {0, 1, 2, 3, 4, 5, 6, 7};
  for (const int rank : all) script.begin(rank, "all_reduce", kWorld, all);
  for (const int rank : {0, 1, 2, 3}) script.silent(rank);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({0, 1, 2, 3}));
  EXPECT_EQ(verdict.line,
            "no progress for 10 s: n0, n1 cannot be reached from n2 (ranks 0, 1, 2, 3), missing "
            "from all_reduce 1 of world, where 4 ranks wait for it");
}

// Only rank 4 is waited for; that its neighbours are gone as well is said all the same.
TEST(HangAnalysis, HostsThatCannotBeReachedAreNamedTogether) {
  Script script(8);
  script.receive(0, 4);
  for (const int rank : {4, 5, 6, 7}) script.silent(rank);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({4, 5, 6, 7}));
  EXPECT_TRUE(says(verdict, ": n2, n3 cannot be reached from n0 (ranks 4, 5, 6, 7), missing from"))
      << verdict.line;
}

// Data 64 x pipeline 8 x tensor 8: rank 1234 hangs in its own work, its tensor group waits for it,
// their pipelines for these, the data groups for those, and all others already stand in a barrier.
TEST(HangAnalysis, OneOf4096) {
  constexpr int kRanks = 4096, kStuck = 1234, kData = 11;
  Script script(kRanks);
  Ranks all(kRanks);
  std::iota(all.begin(), all.end(), 0);
  const int replica = kStuck / 64 * 64, stage = kStuck / 8 * 8;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kStuck) continue;
    Ranks data;
    for (int member = rank % 64; member < kRanks; member += 64) data.push_back(member);
    if (rank / 8 * 8 == stage) {
      Ranks tensor(8);
      std::iota(tensor.begin(), tensor.end(), stage);
      script.begin(rank, "all_reduce", kTensor, tensor);
    } else if (rank / 64 * 64 == replica) {
      script.receive(rank, rank < stage ? rank + 8 : rank - 8);
    } else if (rank % 64 / 8 * 8 == stage % 64) {
      script.begin(rank, "all_reduce", kData, data, kTimeout - 1);
    } else {
      script.begin(rank, "barrier", kWorld, all, kTimeout - 2);
    }
  }
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, Ranks({kStuck}));
  EXPECT_TRUE(says(verdict,
                   "rank 1234 (n617) waits for nothing, missing from all_reduce 1 of tensor"
                   ", where 7 ranks wait for it"))
      << verdict.line;
}

TEST(HangAnalysis, AHalfOf4096WaitsForTheOther) {
  constexpr int kRanks = 4096;
  Script script(kRanks);
  Ranks all(kRanks);
  std::iota(all.begin(), all.end(), 0);
  for (int rank = 0; rank < kRanks / 2; ++rank) script.begin(rank, "barrier", kWorld, all);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits.size(), 2048u);
  EXPECT_TRUE(says(verdict,
                   "rank 2063 (n1031), 2032 more each waits for nothing, missing from "
                   "barrier 1 of world, where 2048 ranks wait for it"))
      << verdict.line;
}

// 512 nodes of 8 ranks, 16 nodes below a leaf switch. One is cut off: its ranks cannot be reached.
TEST(HangAnalysis, ALeafOf4096CannotBeReached) {
  constexpr int kRanks = 4096, kFirst = 1280, kLast = kFirst + 128;
  Script script(kRanks, /*ranks_of_host=*/8);
  Ranks all(kRanks), lost(128);
  std::iota(all.begin(), all.end(), 0);
  std::iota(lost.begin(), lost.end(), kFirst);
  for (int rank = 0; rank < kRanks; ++rank) {
    script.begin(rank, "all_reduce", kWorld, all);
    if (kFirst <= rank && rank < kLast) script.silent(rank);
  }
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits, lost);
  EXPECT_TRUE(says(verdict,
                   "n160, n161, n162, n163, n164, n165, n166, n167, n168, n169, n170, n171, n172, "
                   "n173, n174, n175 cannot be reached from n0 (ranks 1280, 1281,"))
      << verdict.line;
  EXPECT_TRUE(says(verdict, "missing from all_reduce 1 of world, where 3968 ranks wait for it"))
      << verdict.line;
  EXPECT_LT(verdict.line.size(), 600u);
}

// A ring through all ranks, each of which sends before it receives.
TEST(HangAnalysis, ACircleOf4096Sends) {
  constexpr int kRanks = 4096;
  Script script(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) script.send(rank, (rank + 1) % kRanks);
  const auto verdict = script.verdict();
  EXPECT_EQ(verdict.culprits.size(), 4096u);
  EXPECT_TRUE(says(verdict, "these wait for each other: rank 0 (n0) in send 1 to 1 of pipeline"))
      << verdict.line;
  EXPECT_LT(verdict.line.size(), 1500u);
}

TEST(RankReport, DamagedBytesAreNoReport) {
  Script script(2);
  RankReport report;
  report.waiting.push_back(
      {.key = {1, 2, true}, .name = "send", .communicator = "pipeline", .members = Ranks{0, 1}});
  const std::string bytes = encode(report);
  ASSERT_TRUE(decode_report(bytes, 2).has_value());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_report(bytes.substr(0, size), 2).has_value()) << size;
  }
  EXPECT_FALSE(decode_report(bytes + "x", 2).has_value());
  EXPECT_FALSE(decode_report(bytes, 1).has_value());  // there is no rank 1
}

TEST(RankReport, MembersKeepTheirOrder) {
  const std::vector<Ranks> lists = {
      {}, {5}, {0, 1, 2, 3}, {6, 4, 2, 0}, {0, 8, 16, 3, 4, 5, 1}, {2, 2, 2}};
  for (const Ranks& list : lists) {
    RankReport report;
    report.waiting.push_back(
        {.key = {}, .name = "all_reduce", .communicator = "data", .members = list});
    const auto decoded = decode_report(encode(report), 17);
    ASSERT_TRUE(decoded.has_value());
    Ranks got;
    decoded->waiting.front().members.for_each([&](int rank) { got.push_back(rank); });
    EXPECT_EQ(got, list);
    EXPECT_EQ(decoded->waiting.front().members.size(), list.size());
  }
}

// What a hang costs: bytes of a report and messages of all ranks, on nodes of eight ranks.
struct HangTraffic {
  std::size_t report_bytes = 0;
  std::int64_t messages = 0;
};

HangTraffic traffic_of_a_hang(int ranks) {
  std::vector<std::string> hosts;
  Ranks all;
  for (int rank = 0; rank < ranks; ++rank) {
    hosts.push_back(fmt::format("n{}", rank / 8));
    all.push_back(rank);
  }
  RankReport report;
  report.waiting.push_back(
      {.key = {}, .name = "all_reduce", .communicator = "world", .members = all});
  for (int lane = 0; lane < 8; ++lane) report.begun.push_back({{lane}, 1});
  // All ranks find the hang at the same time, and all of them answer.
  HangTraffic traffic{encode(report).size()};
  const Ranks judges = choose_judges(hosts);
  for (const int rank : all) {
    for (const HangNews news : {HangNews::kFound, HangNews::kAlarm, HangNews::kReport}) {
      traffic.messages += std::ssize(receivers_of(news, rank, judges, ranks));
    }
  }
  return traffic;
}

TEST(HangTraffic, GrowsWithTheRanksAndNotWithTheirSquare) {
  for (const int ranks : {64, 4096}) {
    const HangTraffic traffic = traffic_of_a_hang(ranks);
    std::cout << ranks << " ranks: at most " << traffic.messages << " messages, "
              << traffic.report_bytes << " bytes of a report\n";
    EXPECT_LE(traffic.messages, 12 * ranks);
    EXPECT_LE(traffic.report_bytes, 600u);
  }
}

TEST(HangTraffic, ReachesTheJudgesAndThroughThemAllOthers) {
  const Ranks judges = {0, 2, 5};
  for (const HangNews news : {HangNews::kFound, HangNews::kReport}) {
    EXPECT_EQ(receivers_of(news, 1, judges, 6), judges);
    EXPECT_EQ(receivers_of(news, 2, judges, 6), Ranks({0, 5}));
  }
  EXPECT_EQ(receivers_of(HangNews::kAlarm, 1, judges, 6), Ranks());
  EXPECT_EQ(receivers_of(HangNews::kAlarm, 2, judges, 6), Ranks({0, 1, 3, 4, 5}));
}

TEST(Judges, StandFarApart) {
  const auto nodes = [](int count, int ranks_of_each) {
    std::vector<std::string> hosts;
    for (int node = 0; node < count; ++node) {
      hosts.insert(hosts.end(), static_cast<std::size_t>(ranks_of_each), fmt::format("n{}", node));
    }
    return hosts;
  };
  EXPECT_EQ(choose_judges(nodes(1, 1)), Ranks({0}));
  EXPECT_EQ(choose_judges(nodes(1, 3)), Ranks({0, 1, 2}));
  EXPECT_EQ(choose_judges(nodes(1, 8)), Ranks({0, 2, 5, 7}));
  EXPECT_EQ(choose_judges(nodes(2, 8)), Ranks({0, 5, 10, 15}));
  EXPECT_EQ(choose_judges(nodes(4, 8)), Ranks({0, 8, 16, 24}));
  EXPECT_EQ(choose_judges(nodes(512, 8)), Ranks({0, 8 * 170, 8 * 341, 8 * 511}));
}

}  // namespace
}  // namespace trireme
