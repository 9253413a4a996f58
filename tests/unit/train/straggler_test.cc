// Who holds up a run, told from made-up windows.
#include "trireme/train/straggler.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace trireme {
namespace {

using Lines = std::vector<std::string>;

// A grid of data x pipeline x tensor, `per_node` ranks a node; each stage computes in 0.2 s, 0.3 s,
// ...; a step takes 1 s.
RankTable window_of(int data, int pipeline, int tensor, int per_node) {
  RankTable table;
  const int ranks = data * pipeline * tensor;
  for (int i = 0; i * per_node < ranks; ++i)
    table.nodes.push_back({std::string("n").append(std::to_string(i)), 1e9});
  for (int i = 0; i < ranks; ++i) {
    RankTimes rank;
    rank.node = i / per_node;
    const int stage = i / tensor % pipeline;
    rank.place = {i / tensor / pipeline, stage, i % tensor};
    rank.micro_batches = 4;
    rank.compute_seconds = 0.2 + 0.1 * stage;
    rank.comm_seconds = 1.0 - rank.compute_seconds;
    rank.memory_bytes = 1e9;
    table.ranks.push_back(rank);
  }
  return table;
}

void slow_down(RankTable& table, std::size_t rank, double times) {
  RankTimes& r = table.ranks[rank];
  r.compute_seconds *= times;
  r.comm_seconds = std::max(0.0, 1.0 - r.compute_seconds);
}

class Watch {
 public:
  // The next window, of ten steps.
  Lines look(RankTable& table) {
    table.first_step = step_ + 1;
    table.last_step = step_ += 10;
    return detector_.look(table);
  }
  Lines look(const RankTable& table, int windows) {
    Lines all;
    for (int i = 0; i < windows; ++i) {
      RankTable next = table;
      for (std::string& line : look(next)) all.push_back(std::move(line));
    }
    return all;
  }

 private:
  StragglerDetector detector_;
  std::int64_t step_ = 0;
};

TEST(Straggler, OneSlowRankIsNamedAfterTwoWindowsAndOnce) {
  Watch watch;
  const RankTable usual = window_of(4, 1, 2, 2);
  EXPECT_EQ(watch.look(usual, 3), Lines());
  RankTable slow = usual;
  slow_down(slow, 5, 1.6);
  EXPECT_EQ(watch.look(slow), Lines());
  EXPECT_DOUBLE_EQ(slow.ranks[5].times_peers, 1.6);
  EXPECT_EQ(slow.stragglers, Lines());
  const std::string line =
      "rank 5 on n2 computes 1.6 x as long as its peers (320.0 ms a step, median 200.0 ms) since "
      "step "
      "31";
  EXPECT_EQ(watch.look(slow), Lines{line});
  EXPECT_EQ(slow.stragglers, Lines{line});
  EXPECT_EQ(slowest_rank(slow), 5u);
  EXPECT_EQ(watch.look(slow, 5), Lines());
  EXPECT_EQ(watch.look(usual, 1), Lines());
  EXPECT_EQ(watch.look(usual, 1), Lines{"rank 5 on n2 is back to normal after step 120"});
  EXPECT_EQ(watch.look(usual, 5), Lines());
}

TEST(Straggler, OneSlowWindowIsNotEnough) {
  Watch watch;
  const RankTable usual = window_of(4, 1, 1, 1);
  RankTable slow = usual;
  slow_down(slow, 1, 3.0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(watch.look(slow, 1), Lines());
    EXPECT_EQ(watch.look(usual, 1), Lines());
  }
}

TEST(Straggler, BetweenTheTwoMarginsNothingChanges) {
  Watch watch;
  const RankTable usual = window_of(4, 1, 1, 1);
  RankTable slow = usual, little = usual;
  slow_down(slow, 1, 1.5);
  slow_down(little, 1, 1.15);
  EXPECT_EQ(watch.look(little, 10), Lines());
  EXPECT_EQ(watch.look(slow, 2).size(), 1u);
  EXPECT_EQ(watch.look(little, 10), Lines());
  EXPECT_EQ(watch.look(slow, 10), Lines());
  EXPECT_EQ(watch.look(usual, 2).size(), 1u);
}

TEST(Straggler, ASlowNodeIsNamedInsteadOfItsRanks) {
  Watch watch;
  const RankTable usual = window_of(4, 1, 4, 4);
  RankTable one = usual;
  slow_down(one, 4, 2.0);
  EXPECT_EQ(watch.look(one, 2).size(), 1u);
  RankTable three = one;
  slow_down(three, 5, 2.5);
  slow_down(three, 6, 2.0);
  EXPECT_EQ(
      watch.look(three, 2),
      Lines{"node n1, 3 of 4 ranks; rank 5 computes 2.5 x as long as its peers (500.0 ms a step, "
            "median 200.0 ms) since step 21"});
  EXPECT_EQ(watch.look(usual, 2), Lines{"node n1 is back to normal after step 60"});
}

TEST(Straggler, WithHalfOfTheNodesSlowTheOtherHalfIsTheMeasure) {
  Watch watch;
  RankTable slow = window_of(2, 1, 2, 2);
  slow_down(slow, 2, 2.0);
  slow_down(slow, 3, 2.0);
  const Lines lines = watch.look(slow, 2);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(0, 23), "node n1, 2 of 2 ranks; ");
}

TEST(Straggler, StagesAndSharesThatDifferByDesignAreNotCompared) {
  Watch watch;
  RankTable table = window_of(4, 3, 1, 3);
  for (RankTimes& rank : table.ranks) {
    if (rank.place[0] >= 2) continue;
    rank.micro_batches = 5;
    rank.compute_seconds *= 1.25;
  }
  EXPECT_EQ(watch.look(table, 5), Lines());
  slow_down(table, 4, 1.3);  // stage 1 of replica 1
  const Lines lines = watch.look(table, 2);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(0, 27), "rank 4 on n1 computes 1.3 x");
}

TEST(Straggler, NoiseNamesNobody) {
  Watch watch;
  for (int window = 0; window < 200; ++window) {
    RankTable table = window_of(8, 1, 1, 1);
    for (std::size_t i = 0; i < table.ranks.size(); ++i) {
      const double wave = std::sin(12.9898 * window + 78.233 * static_cast<double>(i));
      slow_down(table, i, 1.0 + 0.08 * wave);
      table.nodes[i].bytes_per_second *= 1.0 + 0.25 * wave;
    }
    EXPECT_EQ(watch.look(table), Lines()) << window;
  }
}

TEST(Straggler, WhatCostsNothingIsNotNamed) {
  Watch watch;
  RankTable table = window_of(4, 1, 1, 1);
  for (RankTimes& rank : table.ranks) {
    rank.compute_seconds = 0.01;
    rank.comm_seconds = 0.99;
  }
  table.ranks[2].compute_seconds = 0.03;
  EXPECT_EQ(watch.look(table, 5), Lines());
}

TEST(Straggler, DriftOfAllIsNoStraggler) {
  Watch watch;
  RankTable table = window_of(4, 2, 1, 2);
  for (int window = 0; window < 50; ++window) {
    for (RankTimes& rank : table.ranks) rank.compute_seconds *= 1.05;
    EXPECT_EQ(watch.look(table, 1), Lines()) << window;
  }
}

TEST(Straggler, WaitingForDataIsItsOwnTimeToo) {
  Watch watch;
  RankTable table = window_of(4, 1, 1, 1);
  table.ranks[3].wait_data_seconds = 0.3;
  EXPECT_EQ(watch.look(table, 2),
            Lines{"rank 3 on n3 waits for data and computes 2.5 x as long as its peers (500.0 ms a "
                  "step, median 200.0 ms, 300.0 ms of it for data) since step 1"});
}

TEST(Straggler, WithoutPeersElsewhereARankIsComparedWithItsPast) {
  for (const auto& [ranks, per_node] : {std::pair(1, 1), std::pair(2, 2)}) {
    Watch watch;
    const RankTable usual = window_of(1, 1, ranks, per_node);
    RankTable slow = usual, little = usual;
    for (int i = 0; i < ranks; ++i) {
      slow_down(slow, static_cast<std::size_t>(i), 2.0);
      slow_down(little, static_cast<std::size_t>(i), 1.4);
    }
    EXPECT_EQ(watch.look(usual, 3), Lines());
    EXPECT_EQ(watch.look(little, 3), Lines());
    const Lines lines = watch.look(slow, 4);
    ASSERT_EQ(lines.size(), 1u) << ranks;
    EXPECT_NE(
        lines[0].find("2.0 x as long as before (400.0 ms a step, before 200.0 ms) since step 61"),
        std::string::npos)
        << lines[0];
    EXPECT_EQ(watch.look(usual, 2).size(), 1u);
  }
}

TEST(Straggler, AFewWindowsAreNoPast) {
  Watch watch;
  const RankTable usual = window_of(1, 1, 1, 1);
  RankTable slow = usual;
  slow_down(slow, 0, 3.0);
  EXPECT_EQ(watch.look(usual, 1), Lines());
  EXPECT_EQ(watch.look(slow, 10), Lines());
}

TEST(Straggler, ManyAreToldInFewLines) {
  Watch watch;
  RankTable table = window_of(40, 1, 1, 1);
  for (std::size_t i = 0; i < 15; ++i) slow_down(table, i, 2.0);
  const Lines lines = watch.look(table, 2);
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines.back(), "and 7 more");
  EXPECT_EQ(watch.look(table), Lines());
  EXPECT_EQ(table.stragglers, lines);
}

TEST(Straggler, ASlowLinkIsNamed) {
  Watch watch;
  const RankTable usual = window_of(4, 1, 1, 1);
  RankTable slow = usual;
  slow.nodes[2].bytes_per_second = 25e6;
  EXPECT_EQ(watch.look(usual, 2), Lines());
  EXPECT_EQ(watch.look(slow, 2), Lines{"the link of n2 carries 25.0 MB/s, those of the other nodes "
                                       "1.0 GB/s, since step 21"});
  EXPECT_EQ(watch.look(slow, 5), Lines());
  EXPECT_EQ(watch.look(usual, 2), Lines{"the link of n2 is back to normal after step 110"});
}

TEST(Straggler, OfTwoNodesTheLinkIsComparedWithItsPast) {
  Watch watch;
  const RankTable usual = window_of(2, 1, 1, 1);
  RankTable slow = usual;
  for (NodeLink& node : slow.nodes) node.bytes_per_second = 1e8;
  EXPECT_EQ(watch.look(usual, 3), Lines());
  EXPECT_EQ(watch.look(slow, 3),
            Lines{"the link between n0 and n1 carries 100.0 MB/s, before it was "
                  "1.0 GB/s, since step 31"});
}

TEST(Straggler, ABusyNodesLinkIsNotBlamed) {
  Watch watch;
  RankTable table = window_of(4, 1, 1, 1);
  slow_down(table, 1, 3.0);
  table.nodes[1].bytes_per_second = 1e8;
  const Lines lines = watch.look(table, 5);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(0, 12), "rank 1 on n1");
}

TEST(Straggler, LinkRatesComeFromTheFasterOfANodesPairs) {
  // Node 2 of four is slow. Its partners waited for it, and node 3 for node 0, which was late.
  const std::vector<double> to_previous = {0.5, 0.1, 1.0, 1.0}, to_next = {0.1, 1.1, 1.2, 0.1};
  EXPECT_EQ(link_rates(to_previous, to_next, 1.0), (std::vector<double>{10.0, 10.0, 1.0, 10.0}));
  // Node 0 of three is slow.
  EXPECT_EQ(link_rates(std::vector<double>{1.0, 1.0, 0.2}, std::vector<double>{1.0, 0.2, 1.0}, 1.0),
            (std::vector<double>{1.0, 5.0, 5.0}));
  // Two are one pair; one has none.
  EXPECT_EQ(link_rates(std::vector<double>{0.0, 0.5}, std::vector<double>{0.25, 0.0}, 1.0),
            (std::vector<double>{4.0, 4.0}));
  EXPECT_EQ(link_rates(std::vector<double>{0.0}, std::vector<double>{0.0}, 1.0),
            std::vector<double>{0.0});
}

TEST(RankTable, IsReadAsItWasWritten) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "ranks.json").string();
  EXPECT_FALSE(read_rank_table(path));
  RankTable table = window_of(2, 2, 2, 4);
  table.first_step = 11;
  table.last_step = 20;
  table.gather_seconds = 0.00123;
  table.stragglers = {"rank 1 on \"n0\""};
  table.ranks[3].times_peers = 1.25;
  table.ranks[3].wait_data_seconds = std::nan("");
  std::ofstream(path) << to_json(table);
  const auto read = read_rank_table(path);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->first_step, 11);
  EXPECT_EQ(read->last_step, 20);
  EXPECT_DOUBLE_EQ(read->gather_seconds, 0.00123);
  EXPECT_EQ(read->stragglers, table.stragglers);
  ASSERT_EQ(read->nodes.size(), 2u);
  EXPECT_EQ(read->nodes[1].host, "n1");
  EXPECT_DOUBLE_EQ(read->nodes[1].bytes_per_second, 1e9);
  ASSERT_EQ(read->ranks.size(), 8u);
  const RankTimes& rank = read->ranks[3];
  EXPECT_EQ(std::tuple(rank.node, rank.place, rank.micro_batches),
            std::tuple(0, DimensionNumbers{0, 1, 1}, 4));
  EXPECT_DOUBLE_EQ(rank.compute_seconds, 0.3);
  EXPECT_DOUBLE_EQ(rank.comm_seconds, 0.7);
  EXPECT_DOUBLE_EQ(rank.wait_data_seconds, 0.0);
  EXPECT_DOUBLE_EQ(rank.memory_bytes, 1e9);
  EXPECT_DOUBLE_EQ(rank.times_peers, 1.25);
}

TEST(RankTable, OfAThousandRanksStaysSmall) {
  RankTable table = window_of(1000, 1, 1, 8);
  for (std::size_t i = 0; i < 1000; ++i) {
    table.ranks[i].compute_seconds = 0.123456789 + 1e-5 * static_cast<double>(i);
    table.ranks[i].times_peers = 1.0 / 3.0;
  }
  EXPECT_LT(to_json(table).size(), 80000u);
}

TEST(RankTable, WhatIsNoTableOfOursIsNone) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "ranks.json").string();
  const std::string good = to_json(window_of(2, 1, 1, 1));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text :
       {std::string(), good.substr(0, good.size() / 2), std::string("[1, 2]"),
        with("\"nodes\"", "\"hosts\""), with("[1,1,0", "[7,1,0"), with("[1,1,0", "[-1,1,0"),
        with("[1,1,0,0", "[1,1"), with("\"last_step\":0", "\"last_step\":\"x\"")}) {
    std::ofstream(path, std::ios::trunc) << text;
    EXPECT_FALSE(read_rank_table(path)) << text;
  }
}

}  // namespace
}  // namespace trireme
