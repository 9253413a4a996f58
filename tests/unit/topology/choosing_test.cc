// Stored rates, and the algorithms that follow from predicted times.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/environment.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/comm/segments.h"
#include "trireme/topology/planner.h"
#include "trireme/topology/prediction.h"
#include "trireme/topology/stored_rates.h"

#include "support/message_of.h"

namespace trireme {
namespace {

using testing::message_of;

StoredRates measured() {
  return {.rates = {.distances = {{5e-7, 8e9, 20e9, 0.0},
                                  {2e-6, 12e9, 12.5e9, 0.0},
                                  {4e-6, 12e9, 12.5e9, 25e9}},
                    .costs = {.message = 1e-7, .reduced_byte = 1e-10, .copied_byte = 2e-10}},
          .cluster = "alps",
          .measured = 1'790'000'000,
          .hosts = {"n1", "n2", "n3", "n4"},
          .tiers = {{0, 0, 1, 1}},
          .collectives = {{Collective::kAllGather, "bruck", 4096, 4, 1.5e-5}}};
}

TEST(StoredRates, AreReadAsTheyWereWritten) {
  const StoredRates written = measured();
  const std::string text = write_network_rates(written);
  const StoredRates read = read_network_rates(text, "rates.json");
  EXPECT_EQ(read.rates.distances, written.rates.distances);
  EXPECT_EQ(read.rates.costs.message, 1e-7);
  EXPECT_EQ(read.rates.costs.reduced_byte, 1e-10);
  EXPECT_EQ(read.rates.costs.copied_byte, 2e-10);
  EXPECT_EQ(read.cluster, "alps");
  EXPECT_EQ(read.measured, written.measured);
  EXPECT_EQ(read.hosts, written.hosts);
  EXPECT_EQ(read.tiers, written.tiers);
  EXPECT_EQ(read.collectives, written.collectives);
  EXPECT_EQ(write_network_rates(read), text);
}

TEST(StoredRates, WhatIsWrongIsSaidInOneLine) {
  const std::string text = write_network_rates(measured());
  const auto refusal = [](const std::string& damaged) {
    return message_of([&] { read_network_rates(damaged, "rates.json"); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const auto at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return refusal(changed.replace(at, from.size(), to));
  };
  // bad input: a file of network rates that is damaged, or another file | FILE: not a file of
  // network rates: WHAT; trireme topo probe writes one | 2
  for (const std::string& message :
       {refusal(""), refusal("[]"), refusal(text.substr(0, text.size() / 2)),
        with("network rates", "net"), with("\"version\": 1", "\"version\": 2"),
        with("\"flow\": 12000000000", "\"flow\": -1"), with("\"flow\": 12000000000", "\"flow\": 0"),
        with("\"flow\": 12000000000", "\"flow\": 1e300"),
        with("\"flow\": 12000000000", "\"flow\": 1e-300"),
        with("\"latency\": 2e-06", "\"latency\": 1e30"),
        with("\"host\": 12500000000", "\"host\": NaN"),
        with("\"message\": 1e-07", "\"message\": -1e-07"),
        with("\"reduced_byte\": 1e-10", "\"reduced_byte\": 1"),
        with("\"seconds\": 1.5e-05", "\"seconds\": 0"),
        with("\"latency\": 2e-06", "\"latency\": null"), with("\"n4\"", "4"),
        with("\"all_gather\"", "\"all_father\""), with(",\n  \"n4\"", ""),
        with("\"n3\",", "\"n3\",\"n3b\",")}) {
    EXPECT_TRUE(message.starts_with("rates.json: not a file of network rates: ")) << message;
    EXPECT_TRUE(message.ends_with("; trireme topo probe writes one")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(StoredRates, OfOtherHostsOrTiersAreStale) {
  EXPECT_EQ(why_stale(measured(), {"n4", "n1"}), "");
  EXPECT_EQ(why_stale(measured(), {"n4", "n5", "n6"}), "measured without n[5-6]");
  // Another launcher gives nodes the names of their domain.
  EXPECT_EQ(why_stale(measured(), {"n4.site.org", "n1.site.org"}), "");
  const JobNetwork plain = job_network(measured(), "rates", {"n4", "n4", "n1"});
  const JobNetwork full =
      job_network(measured(), "rates", {"n4.site.org", "n4.site.org", "n1.site.org"});
  EXPECT_EQ(job_network_to_text(plain), job_network_to_text(full));
  std::string remark;
  const std::vector<std::string> hosts = {"host0.site.org", "host2.site.org", "host9.site.org"};
  const JobNetwork described =
      job_network(make_fat_tree({{2, 1e9}, {2, 0.0}}, 1e9), "tree", hosts, remark);
  EXPECT_EQ(described.blocks.blocks(0), 3);
  EXPECT_EQ(remark, "tree: host9.site.org not found there; counted as beyond all other nodes");
  EXPECT_EQ(why_other_tiers(measured().rates, 2), "");
  EXPECT_EQ(why_other_tiers(measured().rates, 1), "rates for 3 distances, but the ranks have 2");
}

TEST(StoredRates, LieInAFileOfTheCluster) {
  const auto set = [](const char* name, const std::string& value) {
    value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  };
  const std::map<std::string, std::string> given = {
      {"TRIREME_NETWORK", ""}, {"XDG_CACHE_HOME", "/cache"}, {"SLURM_CLUSTER_NAME", "alps"}};
  std::map<std::string, std::string> before;
  for (const auto& [name, value] : given) {
    before[name] = environment(name.c_str());
    set(name.c_str(), value);
  }
  EXPECT_EQ(usual_rates_path(), "/cache/trireme/network-alps.json");
  // A name with a slash would lead to another folder.
  set("SLURM_CLUSTER_NAME", "x/../../alps");
  EXPECT_EQ(usual_rates_path(), "/cache/trireme/network-local.json");
  set("TRIREME_NETWORK", "/site/rates.json");
  EXPECT_EQ(usual_rates_path(), "/site/rates.json");
  for (const auto& [name, value] : before) set(name.c_str(), value);
}

// The slowest host and the slowest leaf of a description tell the rates of all.
TEST(Planner, TheLowestRateOfATierCounts) {
  const auto rates = [](double last_uplink) {
    Fabric fabric(FabricSource::kDump);
    const auto leaf = [&](const char* name, double up,
                          std::vector<std::pair<const char*, double>> hosts) {
      const int own = fabric.add_switch(name);
      for (const auto& [host, rate] : hosts) fabric.add_cable({own, fabric.add_host(host), rate});
      fabric.add_cable({fabric.add_switch("spine"), own, up});
    };
    leaf("leaf1", 15e9, {{"n1", 10e9}, {"n2", 20e9}});
    leaf("leaf2", last_uplink, {{"n3", 20e9}, {"n4", 20e9}});
    fabric.find_levels();
    std::string remark;
    const JobNetwork job = job_network(fabric, "dump", {"n1", "n2", "n3", "n4"}, remark);
    EXPECT_EQ(remark, "");
    EXPECT_EQ(job.rates.distances.at(1).host, 10e9);
    EXPECT_EQ(assumed_rates(job.blocks, 10e9).distances.at(2).block, 10e9);
    return job.rates.distances.at(2).block;
  };
  EXPECT_EQ(rates(30e9), 15e9);
  // Where one is not known the others tell nothing of it.
  EXPECT_EQ(rates(0.0), 10e9);
}

// Ranks on nodes of two, two nodes on a leaf.
RankBlocks two_by_two(int ranks) {
  std::vector<int> nodes, leaves;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / 2), leaves.push_back(rank / 4);
  return RankBlocks(ranks, {nodes, leaves});
}

TEST(Planner, ChoosesTheFastestAtEverySize) {
  for (const double uplink : {2e10, 2.5e9}) {
    const RankBlocks blocks = two_by_two(16);
    const TreeNetwork network(
        blocks, {.distances = {{5e-7, 5e9, 2e10}, {2e-6, 1e10, 1e10}, {4e-6, 1e10, 1e10, uplink}}});
    Predictor predictor(network, {.message = 1e-7}, std::make_shared<RankBlocks>(blocks));
    for (const bool any_order : {false, true}) {
      const AlgorithmTable table = make_table(predictor, any_order);
      for (const Collective collective : kCollectives) {
        if (collective == Collective::kExchange) continue;
        // Also between the powers, and beyond them.
        for (std::size_t bytes = 700; bytes < std::size_t{1} << 29; bytes = bytes * 3 / 2) {
          const auto all = candidates(predictor, collective, bytes, any_order);
          const Algorithm chosen = table.choose(collective, bytes, 16);
          const auto one = std::ranges::find(all, chosen, &Candidate::algorithm);
          ASSERT_NE(one, all.end()) << name_of(chosen);
          EXPECT_LE(one->prediction.seconds, 1.15 * all.front().prediction.seconds)
              << name_of(collective) << " of " << bytes << " by " << name_of(chosen)
              << " and not by " << name_of(all.front().algorithm);
          if (!any_order) {
            EXPECT_TRUE(keeps_order(collective, chosen));
          }
        }
      }
      // Few rounds for small messages, few bytes for large ones.
      EXPECT_NE(table.choose(Collective::kAllReduce, 1024, 16),
                table.choose(Collective::kAllReduce, std::size_t{1} << 26, 16));
      // From the largest size down an algorithm stays while it is within 1.5 % of the fastest one.
      for (std::size_t i = 0; i + 1 < table.rules().size(); ++i) {
        const AlgorithmTable::Rule &rule = table.rules()[i], &next = table.rules()[i + 1];
        if (next.collective != rule.collective) continue;
        EXPECT_LT(rule.up_to_bytes, next.up_to_bytes);
        int power = 20;  // of the square root of two
        const auto bytes = [&] { return static_cast<std::size_t>(std::exp2(power / 2.0)); };
        while (bytes() < rule.up_to_bytes) ++power;
        --power;  // the largest size below
        const auto seconds = [&](Algorithm algorithm) {
          return predict(predictor, rule.collective, algorithm, bytes())->seconds;
        };
        EXPECT_GT(seconds(next.algorithm) / seconds(rule.algorithm), 1.015 - 1e-9)
            << name_of(rule.collective) << " to " << rule.up_to_bytes << " by "
            << name_of(rule.algorithm) << ", then " << name_of(next.algorithm);
      }
    }
  }
}

TEST(Planner, LargeCallsTakeBoundedMemory) {
  for (const int ranks : {2, 3, 16}) {
    std::vector<int> nodes(static_cast<std::size_t>(ranks));
    std::iota(nodes.begin(), nodes.end(), 0);
    const RankBlocks blocks(ranks, {nodes});
    PredictedNetwork network(blocks, assumed_rates(blocks));
    const AlgorithmTable table = make_table(network.predictor, false);
    for (const Collective collective : kCollectives) {
      if (collective == Collective::kExchange) continue;
      for (std::size_t bytes = 1 << 10; bytes <= std::size_t{64} << 20; bytes *= 2) {
        const Algorithm chosen = table.choose(collective, bytes, ranks);
        EXPECT_LE(whole_workspace(collective, chosen, bytes, ranks), 1.1 * (1 << 20))
            << name_of(collective) << " of " << bytes << " by " << name_of(chosen);
      }
    }
  }
}

TEST(Planner, PlansACommunicatorByTheBlocksOfItsRanks) {
  const RankBlocks world = two_by_two(16);
  EXPECT_EQ(blocks_among(world, {0, 1}), RankBlocks(2, {{0, 0}}));
  EXPECT_EQ(blocks_among(world, {1, 3}), RankBlocks(2, {{0, 1}}));
  EXPECT_EQ(blocks_among(world, {2, 0, 4}), RankBlocks(3, {{0, 1, 2}, {0, 0, 1}}));
  // Between nodes a message takes so long that only the fewest rounds count; inside of one not.
  NetworkRates rates = assumed_rates(world);
  ASSERT_EQ(rates.distances.size(), 3u);
  EXPECT_GT(rates.distances[2].block, 0.0);
  for (std::size_t distance : {1, 2}) rates.distances[distance].latency = 1e-3;
  const CommunicatorPlanner planner =
      make_planner({.blocks = world, .rates = rates, .source = "a test"}, false);
  const CommunicatorPlan apart = planner("data", {0, 4, 8, 12});
  const CommunicatorPlan near = planner("tensor", {0, 1});
  EXPECT_EQ(*apart.blocks, RankBlocks(4, {{0, 1, 2, 3}, {0, 1, 2, 3}}));
  EXPECT_EQ(apart.algorithms.choose(Collective::kAllReduce, 1 << 17, 4), Algorithm::kDirect);
  EXPECT_EQ(plan_to_text(planner("other", {2, 6, 10, 14})), plan_to_text(apart));
  EXPECT_EQ(*near.blocks, RankBlocks(2, {{0, 0}}));
  EXPECT_NE(plan_to_text(near), plan_to_text(apart));
}

TEST(Planner, WhatWasMeasuredCorrectsPredictions) {
  constexpr Collective kSum = Collective::kAllReduce;
  constexpr std::size_t kBytes = 1 << 20;
  StoredRates stored = measured();
  stored.collectives.clear();
  const std::vector<std::string> hosts = {"n1", "n2", "n3", "n4"};
  ASSERT_EQ(stored.hosts, hosts);
  const JobNetwork plain = job_network(stored, "rates", hosts);
  EXPECT_TRUE(plain.errors.empty());
  PredictedNetwork network(plain.blocks, plain.rates);
  const auto likely = candidates(network.predictor, kSum, kBytes, false);
  ASSERT_GE(likely.size(), 3u);
  const Algorithm first = likely[0].algorithm, second = likely[1].algorithm;
  const auto chosen = [&](const JobNetwork& job) {
    return make_table(network.predictor, false, job.errors).choose(kSum, kBytes, 4);
  };
  EXPECT_EQ(chosen(plain), first);
  // The first takes 20 times as long as predicted, the second what is predicted, and nobody knows
  // of the others.
  const auto add = [&](Algorithm algorithm, double seconds, int ranks) {
    stored.collectives.push_back({kSum, std::string(name_of(algorithm)), kBytes, ranks, seconds});
  };
  add(first, 20.0 * likely[0].prediction.seconds, 4);
  add(second, likely[1].prediction.seconds, 4);
  add(Algorithm::kLibrary, 1e-9, 4);  // has no prediction
  add(first, 1e-9, 6);                // on 4 hosts
  const JobNetwork job = job_network(stored, "rates", hosts);
  ASSERT_EQ(job.errors.size(), 2u);
  EXPECT_NEAR(job.errors[0].seconds / likely[0].prediction.seconds, 19.0, 1e-6);
  EXPECT_EQ(chosen(job), second);
  EXPECT_EQ(job_network_from_text(job_network_to_text(job)).errors, job.errors);

  const std::vector<MeasuredError> errors = {{kSum, first, 1 << 10, 4, 1e-5},
                                             {kSum, first, 1 << 20, 4, -4e-5},
                                             {kSum, second, 1 << 10, 4, 3e-5}};
  const auto missing = [&](Algorithm algorithm, std::size_t bytes, int ranks = 4) {
    return corrected(1e-3, errors, kSum, algorithm, bytes, ranks, 0) - 1e-3;
  };
  EXPECT_NEAR(missing(first, 1), 1e-5, 1e-12);
  EXPECT_NEAR(missing(first, ((1 << 10) + (1 << 20)) / 2), -1.5e-5, 1e-12);
  EXPECT_NEAR(missing(first, 1 << 23), -8 * 4e-5, 1e-12);  // grows with the bytes
  EXPECT_NEAR(missing(second, 512), 3e-5, 1e-12);
  EXPECT_NEAR(missing(second, 1 << 20), -4e-5, 1e-12);  // only the first was measured there
  const std::vector<MeasuredError> of_large = {{kSum, first, 1 << 10, 4, 1e-5},
                                               {kSum, second, 1 << 20, 4, -5e-4}};
  EXPECT_NEAR(corrected(1e-3, of_large, kSum, second, 1 << 10, 4, 0), 1e-3 + 1e-5, 1e-12);
  EXPECT_NEAR(missing(likely[2].algorithm, 1 << 10), 3e-5, 1e-12);  // the upper one of two
  EXPECT_DOUBLE_EQ(missing(first, 1 << 20, 8), 0.0);
  EXPECT_DOUBLE_EQ(corrected(1e-3, errors, Collective::kAllGather, first, 1 << 20, 4, 0), 1e-3);
  // However far a measurement is off, it corrects by a factor of 8 at most.
  for (const auto& [error, most] : {std::pair(1.0, 8.0), std::pair(-1.0, 1 / 8.0)}) {
    EXPECT_NEAR(corrected(1e-3, {{kSum, first, 1 << 10, 4, error}}, kSum, first, 1 << 10, 4, 0),
                most * 1e-3, 1e-12);
  }
  EXPECT_NEAR(corrected(likely[0].prediction.seconds, job.errors, kSum, first, kBytes, 4,
                        network.predictor.partials()),
              8.0 * likely[0].prediction.seconds, 1e-12);
}

// An error is about as long in any placement, so it moves a time in another one by less than its
// share of the time where it was measured.
TEST(Planner, ErrorsAreAddedAndDoNotScaleWithThePrediction) {
  constexpr Collective kSum = Collective::kReduceScatter;
  const std::vector<MeasuredError> errors = {{kSum, Algorithm::kHalving, 1 << 16, 4, -4e-3},
                                             {kSum, Algorithm::kPairwise, 1 << 16, 4, -4e-3}};
  const auto time = [&](Algorithm algorithm, double predicted) {
    return corrected(predicted, errors, kSum, algorithm, 1 << 16, 4, 0);
  };
  // Both take 10 ms less 4 ms where they were measured; elsewhere they are predicted at 21 and 20.
  EXPECT_NEAR(time(Algorithm::kHalving, 21e-3), 17e-3, 1e-9);
  EXPECT_NEAR(time(Algorithm::kPairwise, 20e-3), 16e-3, 1e-9);
}

// On one switch an exchange at once and one in turns take the same time; measurements differ by
// noise.
TEST(Planner, OfEquallyFastAlgorithmsTheOneWithFewestTurnsOrMessagesIsChosen) {
  const RankBlocks blocks(4, {{0, 1, 2, 3}});
  const TreeNetwork network(blocks, {.distances = {{5e-7, 5e9, 2e10}, {2e-6, 1e10, 1e10}}});
  Predictor predictor(network, {.message = 1e-7}, std::make_shared<RankBlocks>(blocks));
  const auto seconds = [&](Collective collective, Algorithm algorithm, std::size_t bytes) {
    return predict(predictor, collective, algorithm, bytes)->seconds;
  };
  const auto error = [&](Collective collective, Algorithm algorithm, std::size_t bytes,
                         double measured) {
    return MeasuredError{
        collective,          algorithm, bytes, 4, measured - seconds(collective, algorithm, bytes),
        predictor.partials()};
  };
  const auto large = [&](double share) {
    constexpr Collective kSum = Collective::kReduceScatter;
    constexpr std::size_t kBytes = 16 << 20;
    const double pairwise = seconds(kSum, Algorithm::kPairwise, kBytes);
    return make_table(predictor, false,
                      {error(kSum, Algorithm::kPairwise, kBytes, pairwise),
                       error(kSum, Algorithm::kStepwise, kBytes, share * pairwise)})
        .choose(kSum, kBytes, 4);
  };
  EXPECT_EQ(large(0.99), Algorithm::kPairwise);
  EXPECT_EQ(large(0.98), Algorithm::kStepwise);

  constexpr Collective kAll = Collective::kAllToAll;
  EXPECT_EQ(predictor.turns(kAll, Algorithm::kPairwise), 1);
  EXPECT_EQ(predictor.turns(kAll, Algorithm::kBruck), 2);
  EXPECT_EQ(predictor.turns(kAll, Algorithm::kStepwise), 3);
  EXPECT_EQ(predictor.messages(kAll, Algorithm::kPairwise), 12);
  EXPECT_EQ(predictor.messages(kAll, Algorithm::kBruck), 8);
  EXPECT_EQ(predictor.messages(kAll, Algorithm::kStepwise), 12);
  // Short messages get the one with the fewest; what was chosen for longer ones does not stay.
  const auto small = [&](double pairwise, double stepwise) {
    constexpr std::size_t kBytes = 1 << 10, kMore = 1 << 20;  // the exchange at once takes these
    const double time = 2 * seconds(kAll, Algorithm::kPairwise, kBytes);
    const double more = seconds(kAll, Algorithm::kPairwise, kMore);
    return make_table(predictor, false,
                      {error(kAll, Algorithm::kPairwise, kBytes, pairwise * time),
                       error(kAll, Algorithm::kTiered, kBytes, 2 * time),
                       error(kAll, Algorithm::kBruck, kBytes, time),
                       error(kAll, Algorithm::kStepwise, kBytes, stepwise * time),
                       error(kAll, Algorithm::kPairwise, kMore, more),
                       error(kAll, Algorithm::kTiered, kMore, 2 * more),
                       error(kAll, Algorithm::kBruck, kMore, 2 * more),
                       error(kAll, Algorithm::kStepwise, kMore, 2 * more)})
        .choose(kAll, kBytes, 4);
  };
  EXPECT_EQ(small(2.0, 0.94), Algorithm::kBruck);
  EXPECT_EQ(small(2.0, 0.92), Algorithm::kStepwise);
  EXPECT_EQ(small(0.94, 2.0), Algorithm::kBruck);
  EXPECT_EQ(small(0.92, 2.0), Algorithm::kPairwise);
  EXPECT_EQ(small(0.92, 0.92), Algorithm::kPairwise);
}

TEST(Planner, LeavesOutATieredReduceScatterWhereNoBlockAddsAnythingUp) {
  for (const bool in_order : {true, false}) {
    const auto leaves = in_order ? std::vector{0, 0, 1, 1} : std::vector{0, 1, 0, 1};
    const RankBlocks blocks(4, {{0, 1, 2, 3}, leaves});
    const TreeNetwork network(
        blocks, {.distances = {{5e-7, 5e9, 2e10}, {2e-6, 1e10, 1e10}, {4e-6, 1e10, 1e10, 1e10}}});
    Predictor predictor(network, {.message = 1e-7}, std::make_shared<RankBlocks>(blocks));
    EXPECT_NE(predictor.is_exchange(Collective::kReduceScatter, Algorithm::kTiered), in_order);
    EXPECT_FALSE(predictor.is_exchange(Collective::kReduceScatter, Algorithm::kPairwise));
    EXPECT_FALSE(predictor.is_exchange(Collective::kAllReduce, Algorithm::kTiered));
    const AlgorithmTable table = make_table(predictor, false);
    EXPECT_EQ(table.choose(Collective::kReduceScatter, 16 << 20, 4),
              in_order ? Algorithm::kTiered : Algorithm::kPairwise);
    EXPECT_EQ(table.choose(Collective::kAllReduce, 16 << 20, 4), Algorithm::kTiered);
  }
}

// With ranks in another order than the probe's, blocks of the fabric hold no subtree of T(4).
TEST(Planner, ATieredReductionIsCorrectedInTheOrderOfItsMeasurement) {
  constexpr std::size_t kBytes = 1 << 20;
  const auto partials_on = [](const std::vector<std::string>& hosts) {
    return PredictedNetwork(blocks_of_ranks(measured(), hosts), measured().rates)
        .predictor.partials();
  };
  const int in_order = partials_on({"n1", "n2", "n3", "n4"});
  const int shuffled = partials_on({"n1", "n3", "n2", "n4"});
  EXPECT_EQ(in_order, 4 + 2 + 1);  // of ranks, leaves and all
  EXPECT_EQ(shuffled, 4 + 4 + 1);
  EXPECT_EQ(partials_on({"n3", "n4", "n2", "n1"}), in_order);

  const std::string tiered(name_of(Algorithm::kTiered)), stepwise(name_of(Algorithm::kStepwise));
  StoredRates stored = measured();
  stored.collectives = {{Collective::kReduceScatter, tiered, kBytes, 4, 1.0},
                        {Collective::kReduceScatter, stepwise, kBytes, 4, 1e-4},
                        {Collective::kAllGather, tiered, kBytes, 4, 1.0},
                        {Collective::kAllGather, stepwise, kBytes, 4, 1e-4}};
  const std::vector<MeasuredError> errors = errors_of(stored);
  ASSERT_EQ(errors.size(), 4u);
  const auto time = [&](Collective collective, Algorithm algorithm, int partials) {
    return corrected(1.0, errors, collective, algorithm, kBytes, 4, partials);
  };
  const double other = time(Collective::kReduceScatter, Algorithm::kStepwise, in_order);
  EXPECT_LT(other, 1.1);
  EXPECT_EQ(time(Collective::kReduceScatter, Algorithm::kStepwise, shuffled), other);
  EXPECT_GT(time(Collective::kReduceScatter, Algorithm::kTiered, in_order), 1.9);
  EXPECT_EQ(time(Collective::kReduceScatter, Algorithm::kTiered, shuffled), other);
  EXPECT_GT(time(Collective::kAllGather, Algorithm::kTiered, in_order), 1.9);
  EXPECT_GT(time(Collective::kAllGather, Algorithm::kTiered, shuffled), 1.9);
}

// A message that is worth its cost travels for about twice as long as it takes to start.
TEST(Planner, ShortMessagesAreWorthTheirCostOnSlowLinks) {
  const RankBlocks blocks(4, {{0, 1, 2, 3}, {0, 0, 1, 1}});
  const auto bytes = [&](double flow, double latency, const RankBlocks& of) {
    const DistanceRates near{5e-7, 4e9, 2e10, 0.0}, far{latency, flow, flow, flow};
    return worthwhile_bytes(of, {.distances = {near, far, far}, .costs = {.message = 1e-5}});
  };
  EXPECT_EQ(bytes(12.5e9, 2e-6, blocks), std::size_t{512} << 10);  // 550 KB
  EXPECT_EQ(bytes(50e6, 60e-6, blocks), std::size_t{8} << 10);
  EXPECT_EQ(bytes(1e6, 60e-6, blocks), std::size_t{4} << 10);   // the least
  EXPECT_EQ(bytes(1e11, 60e-6, blocks), std::size_t{1} << 20);  // the most
  // The distance counts where most bytes are under way: two ranks of a node have 164 KB.
  EXPECT_EQ(bytes(50e6, 60e-6, RankBlocks(4, {{0, 0, 1, 1}, {0, 0, 1, 1}})),
            std::size_t{128} << 10);
  EXPECT_EQ(bytes(50e6, 60e-6, RankBlocks(2, {{0, 0}})), std::size_t{128} << 10);
  // This much is assumed of a network of which nothing is known.
  const RankBlocks nodes(4, {{0, 1, 2, 3}});
  EXPECT_EQ(worthwhile_bytes(nodes, assumed_rates(nodes)), kWorthwhileBytes);

  const NetworkRates slow = assumed_rates(blocks, 1e9);
  const CommunicatorPlan plan = make_planner({.blocks = blocks, .rates = slow, .source = "a test"},
                                             false)("data", {0, 1, 2, 3});
  EXPECT_EQ(plan.worthwhile_bytes, std::size_t{8} << 10);
  EXPECT_EQ(plan.worthwhile_bytes, worthwhile_bytes(blocks, slow));
  CommunicatorPlan other = plan;
  other.worthwhile_bytes = 12345;
  EXPECT_EQ(plan_from_text(plan_to_text(other)).worthwhile_bytes, 12345u);
}

TEST(Planner, TellsATableInShort) {
  const AlgorithmTable table({{Collective::kAllReduce, 3 << 10, Algorithm::kDoubling},
                              {Collective::kAllReduce, std::size_t{5} << 19, Algorithm::kHalving},
                              {Collective::kAllReduce, ~std::size_t{0}, Algorithm::kPairwise},
                              {Collective::kAllGather, ~std::size_t{0}, Algorithm::kBruck}});
  EXPECT_EQ(table_text(table, 4),
            "all_reduce doubling to 3 KiB, halving to 2.5 MiB, pairwise; all_gather bruck");
}

}  // namespace
}  // namespace trireme
