// The parts of the communication layer that need no second rank.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/log.h"
#include "trireme/base/node_names.h"
#include "trireme/comm/algorithms.h"
#include "trireme/comm/launcher.h"
#include "trireme/comm/rank_blocks.h"
#include "trireme/comm/reduce.h"
#include "trireme/comm/sum_blocks.h"
#include "trireme/comm/sum_tree.h"

#include "comm/collectives/tier_plan.h"
#include "comm/grid/core_sharing.h"
#include "comm/grid/rank_place.h"
#include "comm/mpi/eager_messages.h"
#include "support/comm_values.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

CpuMask mask(std::initializer_list<std::size_t> cpus) {
  CpuMask result;
  for (const std::size_t cpu : cpus) result.set(cpu);
  return result;
}

using Cores = std::vector<int>;

TEST(CoreSharing, OverlappingMasksAreDivided) {
  const CpuMask two = mask({0, 1});
  EXPECT_EQ(share_cores({two}), Cores({2}));
  EXPECT_EQ(share_cores({two, two}), Cores({1, 1}));
  EXPECT_EQ(share_cores({two, two, two, two}), Cores({1, 1, 1, 1}));
  const CpuMask six = mask({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(share_cores({six, six, six}), Cores({2, 2, 2}));
}

TEST(CoreSharing, DisjointMasksAreKept) {
  EXPECT_EQ(share_cores({mask({0, 1, 2}), mask({3}), mask({4, 5})}), Cores({3, 1, 2}));
}

TEST(CoreSharing, PartsThatOverlapAreShared) {
  EXPECT_EQ(share_cores({mask({0, 1, 2, 3}), mask({2, 3, 4, 5})}), Cores({3, 3}));
  EXPECT_EQ(share_cores({mask({0, 1}), mask({1})}), Cores({1, 1}));
  EXPECT_EQ(share_cores({mask({}), mask({1})}), Cores({1, 1}));  // more processors than we can see
}

// Leaves of what launchers set only these variables.
void set_environment(const std::map<std::string, std::string>& values) {
  for (const char* name : {"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_SIZE",
                           "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
                           "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURMD_NODENAME"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
}

TEST(CoreSharing, TheSchedulerLimits) {
  set_environment({});
  EXPECT_EQ(limit_by_scheduler(8, 2), 8);
  set_environment({{"SLURM_CPUS_PER_TASK", "3"}, {"SLURM_CPUS_ON_NODE", "100"}});
  EXPECT_EQ(limit_by_scheduler(8, 2), 3);
  EXPECT_EQ(limit_by_scheduler(2, 2), 2);
  set_environment({{"SLURM_CPUS_ON_NODE", "5"}});
  EXPECT_EQ(limit_by_scheduler(8, 2), 2);
  EXPECT_EQ(limit_by_scheduler(8, 7), 1);
}

TEST(Launcher, AWorldOfOneRankIsAnErrorWhereSeveralWereStarted) {
  set_environment({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_NO_THROW(check_world_size(4));
  try {
    check_world_size(1);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    // bad input: a launcher that started several tasks where MPI sees one | srun started 4 tasks,
    // but MPI sees only 1: start them with srun --mpi=pmi2, ... | 2
    EXPECT_STREQ(error.what(),
                 "srun started 4 tasks, but MPI sees only 1: start them with srun --mpi=pmi2, or "
                 "with the mpiexec of MPICH");
  }
  set_environment({{"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}});
  EXPECT_THROW(check_world_size(1), ConfigError);
  set_environment({{"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_THROW(check_world_size(1), ConfigError);
  set_environment({{"PMI_SIZE", "2"}});
  EXPECT_THROW(check_world_size(1), ConfigError);
}

TEST(Launcher, OneTaskIsFine) {
  set_environment({});
  EXPECT_NO_THROW(check_world_size(1));
  // The batch script itself, and an mpiexec -n 1 inside a larger step.
  set_environment({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
  EXPECT_NO_THROW(check_world_size(1));
  set_environment({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "1"}});
  EXPECT_NO_THROW(check_world_size(1));
}

TEST(Launcher, IsTheInnermostOne) {
  // srun with its own PMI, an mpiexec in one of two tasks of a step, and one alone.
  const std::map<std::string, std::string> task = {
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  set_environment(task);
  EXPECT_EQ(launched_tasks().launcher, "srun");
  auto inside = task;
  inside["MPI_LOCALRANKID"] = "1";
  set_environment(inside);
  EXPECT_EQ(launched_tasks().launcher, "mpiexec");
  set_environment({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(launched_tasks().launcher, "mpiexec");
}

TEST(Launcher, SlurmNamesTheNode) {
  set_environment({{"SLURMD_NODENAME", "n3"}});
  EXPECT_EQ(node_name(), "n3");
  set_environment({});
  EXPECT_EQ(node_name(), host_name());
  EXPECT_FALSE(host_name().empty());
}

TEST(Launcher, HostsNameNodesWhereMpiexecGaveOneNameToAll) {
  const auto place = [](const char* node, const char* machine) {
    Place result;
    std::strcpy(result.node, node);
    std::strcpy(result.machine, machine);
    return result;
  };
  EXPECT_FALSE(names_are_shared({place("n1", "a"), place("n2", "b"), place("n1", "a")}));
  EXPECT_FALSE(names_are_shared({place("n1", "a"), place("n2", "a")}));  // emulated nodes
  EXPECT_TRUE(names_are_shared({place("n1", "a"), place("n2", "a"), place("n1", "b")}));
  const auto named = [] {
    set_environment({{"SLURMD_NODENAME", "not the host's"}});
    call_node_by_host();
    std::exit(node_name() == host_name() ? 3 : 4);
  };
  EXPECT_EXIT(named(), ::testing::ExitedWithCode(3), "");
}

TEST(AlgorithmTable, TheFirstRuleThatFitsDecides) {
  const AlgorithmTable table({{Collective::kAllReduce, 100, Algorithm::kDirect, 4},
                              {Collective::kAllReduce, 100, Algorithm::kBruck},
                              {Collective::kAllGather, 5, Algorithm::kDirect},
                              {Collective::kAllReduce, 1000, Algorithm::kLibrary}});
  EXPECT_EQ(table.choose(Collective::kAllReduce, 100, 4), Algorithm::kDirect);
  EXPECT_EQ(table.choose(Collective::kAllReduce, 100, 5), Algorithm::kBruck);
  EXPECT_EQ(table.choose(Collective::kAllReduce, 101, 4), Algorithm::kLibrary);
  EXPECT_EQ(table.choose(Collective::kAllReduce, 1001, 4), Algorithm::kPairwise);
  EXPECT_EQ(table.choose_own(Collective::kAllReduce, 100, 5), Algorithm::kBruck);
  EXPECT_EQ(table.choose_own(Collective::kAllReduce, 101, 4), Algorithm::kDirect);
  EXPECT_EQ(table.choose_own(Collective::kAllReduce, 101, 9), Algorithm::kDoubling);
  EXPECT_EQ(table.choose(Collective::kAllGather, 6, 4), Algorithm::kPairwise);
}

TEST(AlgorithmTable, TheDefaultTurnsAt32KiBAndAtEightRanks) {
  const AlgorithmTable table;
  for (const Collective collective : kCollectives) {
    EXPECT_EQ(table.choose(collective, 32 << 10, 8), Algorithm::kDirect);
    EXPECT_EQ(table.choose(collective, (32 << 10) + 1, 8), Algorithm::kPairwise);
  }
  EXPECT_EQ(table.choose(Collective::kAllReduce, 256 << 10, 9), Algorithm::kDoubling);
  EXPECT_EQ(table.choose(Collective::kAllReduce, (256 << 10) + 1, 9), Algorithm::kPairwise);
  EXPECT_EQ(table.choose(Collective::kAllGather, 4 << 20, 9), Algorithm::kBruck);
  EXPECT_EQ(table.choose(Collective::kAllGather, (4 << 20) + 1, 9), Algorithm::kPairwise);
  EXPECT_EQ(table.choose(Collective::kReduceScatter, 4, 9), Algorithm::kPairwise);
  EXPECT_EQ(name_of(Algorithm::kLibrary), "library");
  EXPECT_EQ(name_of(Collective::kReduceScatter), "reduce_scatter");
}

TEST(Algorithms, RingsAndMpisOwnAddInAnotherOrder) {
  std::set<std::string_view> names;
  for (const Algorithm algorithm : kAlgorithms) {
    names.insert(name_of(algorithm));
    const bool other = algorithm == Algorithm::kRing || algorithm == Algorithm::kLibrary;
    EXPECT_EQ(keeps_order(algorithm), !other) << name_of(algorithm);
    EXPECT_EQ(keeps_order(Collective::kReduceScatter, algorithm), !other) << name_of(algorithm);
    EXPECT_TRUE(keeps_order(Collective::kAllGather, algorithm)) << name_of(algorithm);
  }
  EXPECT_EQ(names.size(), kAlgorithms.size());
}

TEST(AlgorithmTable, AnyOrderAddsRingsForLargeReductions) {
  const AlgorithmTable table = AlgorithmTable::any_order();
  EXPECT_TRUE(AlgorithmTable().keeps_order());
  EXPECT_FALSE(table.keeps_order());
  for (const Collective collective : kCollectives) {
    const bool adds =
        collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
    for (const int ranks : {4, 9, 64, 65}) {
      const AlgorithmTable usual;
      for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{4} << 20}) {
        EXPECT_EQ(table.choose(collective, bytes, ranks), usual.choose(collective, bytes, ranks));
      }
      const std::size_t large = (std::size_t{4} << 20) + 1;
      EXPECT_EQ(table.choose(collective, large, ranks),
                adds && ranks <= 64 ? Algorithm::kRing : usual.choose(collective, large, ranks));
    }
  }
}

TEST(RankBlocks, NumbersDistancesAndOrder) {
  // Nodes {0, 3}, {1}, {2, 4} and leaves {0, 2, 3, 4}, {1}.
  const RankBlocks blocks(5, {{7, 5, 9, 7, 9}, {1, 0, 1, 1, 1}});
  EXPECT_EQ(blocks.tiers(), 2);
  EXPECT_EQ(blocks.blocks(0), 3);
  EXPECT_EQ(blocks.blocks(1), 2);
  EXPECT_EQ(blocks.block(0, 2), 2);
  EXPECT_EQ(blocks.block(1, 1), 1);
  EXPECT_EQ(blocks.distance(0, 3), 0);
  EXPECT_EQ(blocks.distance(0, 4), 1);
  EXPECT_EQ(blocks.distance(1, 4), 2);
  EXPECT_EQ(blocks.in_order(), (std::vector<int>{0, 3, 2, 4, 1}));
  EXPECT_THROW(RankBlocks(3, {{0, 0}}), InternalError);
  EXPECT_THROW(RankBlocks(3, {{0, 0, 1}, {0, 1, 1}}), InternalError);
}

TEST(SumBlocks, TakesBlocksApartThatAddNothingUp) {
  // A rank on each node, dealt to two leaves in turn, or two by two.
  EXPECT_EQ(blocks_of_sums(RankBlocks(4, {{0, 1, 2, 3}, {0, 1, 0, 1}})),
            RankBlocks(4, {{0, 1, 2, 3}, {0, 1, 2, 3}}));
  const RankBlocks in_order(4, {{0, 1, 2, 3}, {0, 0, 1, 1}});
  EXPECT_EQ(blocks_of_sums(in_order), in_order);
  // T(3): rank 2 is a term of its own, and 0 and 1 a pair.
  EXPECT_EQ(blocks_of_sums(RankBlocks(3, {{0, 1, 2}, {0, 1, 0}})),
            RankBlocks(3, {{0, 1, 2}, {0, 1, 2}}));
  // Only one of two leaves adds something up.
  EXPECT_EQ(blocks_of_sums(RankBlocks(4, {{0, 1, 2, 3}, {0, 0, 0, 1}})),
            RankBlocks(4, {{0, 1, 2, 3}, {0, 0, 0, 1}}));
  EXPECT_EQ(blocks_of_sums(RankBlocks(6, {{0, 1, 2, 3, 4, 5}, {0, 1, 0, 1, 2, 2}})),
            RankBlocks(6, {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 4}}));
  // Two ranks of a node stay together, since messages inside of a node load no cable.
  EXPECT_EQ(blocks_of_sums(RankBlocks(8, {{0, 1, 0, 1, 2, 3, 2, 3}, {0, 1, 0, 1, 1, 0, 1, 0}})),
            RankBlocks(8, {{0, 1, 0, 1, 2, 3, 2, 3}, {0, 1, 0, 1, 2, 3, 2, 3}}));
  // Pieces of a leaf may be those of its pod, too; the third tier adds up all.
  EXPECT_EQ(blocks_of_sums(RankBlocks(
                8, {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 0, 1, 2, 3}, {0, 1, 0, 1, 0, 1, 0, 1}})),
            RankBlocks(
                8, {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}}));
  // A leaf of many nodes stays whole.
  std::vector<int> nodes(32), leaves(32);
  for (std::size_t rank = 0; rank < 32; ++rank) {
    nodes[rank] = static_cast<int>(rank), leaves[rank] = static_cast<int>(rank % 2);
  }
  EXPECT_EQ(blocks_of_sums(RankBlocks(32, {nodes, leaves})), RankBlocks(32, {nodes, leaves}));
}

// Whoever represents a part in a block does so on the way up, too.
TEST(TierPlan, HasTheSameRepresentativesForSums) {
  const RankBlocks blocks(12, {{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5},
                               {0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 2},
                               {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}});
  const TierPlan plan(&blocks, 12);
  const TierPlan& sums = plan.sums();
  ASSERT_NE(&sums, &plan);
  EXPECT_EQ(plan.hops(), 4);
  EXPECT_EQ(sums.hops(), 4);
  EXPECT_EQ(sums.children(3, 0).size(), 4u);  // nodes 0 to 3, and not two leaves
  for (const TierPart& part : *plan.parts_in_order(4, 4)) {
    for (int node = 0; node < 4; ++node) {
      EXPECT_EQ(sums.representative(2, sums.block(2, 2 * node), part),
                plan.representative(1, plan.block(1, 2 * node), part));
    }
    EXPECT_EQ(sums.representative(3, 0, part), plan.representative(3, 0, part));
    EXPECT_EQ(sums.representative(4, 0, part), part.owner);
  }
}

// Nodes of 1 to 5 ranks, in leaves of 1 to 4 nodes: no small number divides both evenly.
TEST(TierPlan, HasFewPartsOnIrregularNodes) {
  std::vector<int> nodes, leaves;
  for (int leaf = 0, node = 0; leaf < 6; ++leaf) {
    for (int i = 0; i <= leaf % 4; ++i, ++node) {
      for (int rank = 0; rank <= node % 5; ++rank) {
        nodes.push_back(node);
        leaves.push_back(leaf);
      }
    }
  }
  const auto ranks = static_cast<int>(nodes.size());
  const RankBlocks blocks(ranks, {nodes, leaves});
  const TierPlan plan(&blocks, ranks);
  // The fullest node, leaf and fabric divide a buffer by 5, 4 and 6.
  EXPECT_LE(plan.parts_in_order(4, 4)->size(), 4u * 5 * 4 * 6);
}

// Ranks 0 and 2 are in one leaf, 1 and 3 in the other: neither holds a pair of T(4).
TEST(TierPlan, RepresentsEachPartOnceInEachBlock) {
  const RankBlocks blocks(6, {{0, 1, 0, 1, 2, 2}, {0, 1, 0, 1, 1, 1}});
  const TierPlan plan(&blocks, 6);
  EXPECT_EQ(plan.hops(), 3);
  // T(6): the ranks 0 and 1 are a term, and 2 and 3.
  EXPECT_EQ(plan.subtrees(1, 0), (std::vector<Subtree>{{-1, 0}, {-1, 2}}));
  EXPECT_EQ(plan.subtrees(1, 2), (std::vector<Subtree>{{1, 1}}));
  EXPECT_EQ(plan.subtrees(2, 1), (std::vector<Subtree>{{-1, 1}, {-1, 3}, {1, 1}}));
  EXPECT_EQ(plan.subtrees(3, 0), (std::vector<Subtree>{{2, 0}}));
  for (const TierParts& parts : {plan.part_per_rank(), plan.parts_in_order(4, 4)}) {
    std::vector<int> owned(6);
    for (const TierPart& part : *parts) {
      ++owned[static_cast<std::size_t>(part.owner)];
      for (int tier = 0; tier < 3; ++tier) {
        const int own = plan.block(tier, part.owner);
        EXPECT_EQ(plan.representative(tier, own, part), part.owner);
      }
      for (int tier = 1; tier < 3; ++tier) {
        for (int block = 0; block < blocks.blocks(tier - 1); ++block) {
          const int chosen = plan.representative(tier, block, part);
          EXPECT_EQ(plan.block(tier, chosen), block);
          EXPECT_EQ(plan.representative(tier - 1, plan.block(tier - 1, chosen), part), chosen);
        }
      }
    }
    if (parts == plan.part_per_rank()) {
      EXPECT_EQ(owned, (std::vector<int>{1, 1, 1, 1, 1, 1}));
    }
  }
}

// What the worst rank sends in an all-reduce of fp32 among so many ranks by recursive doubling.
struct Sent {
  std::size_t messages = 0, bytes = 0;
};
Sent sent_by_doubling(int ranks, std::size_t bytes) {
  Sent worst;
  for (int rank = 0; rank < ranks; ++rank) {
    const DoublingPlan plan(rank, SumTree(ranks));
    const std::size_t messages = plan.rounds.size() + (plan.has_partner() ? 1 : 0);
    worst = {std::max(worst.messages, messages), std::max(worst.bytes, messages * bytes)};
  }
  return worst;
}

TEST(AlgorithmTable, AnAlgorithmMayReplaceOthersForSomeSizes) {
  const AlgorithmTable table({{Collective::kAllGather, 10, Algorithm::kBruck},
                              {Collective::kAllReduce, 50, Algorithm::kDirect, 4},
                              {Collective::kAllReduce, 100, Algorithm::kDoubling},
                              {Collective::kAllReduce, 1000, Algorithm::kHalving}});
  struct Case {
    std::size_t first, last;
    Algorithm algorithm;
  };
  // Inside of a rule, across rules, at both ends, and beyond the last rule.
  for (const auto& [first, last, algorithm] :
       std::vector<Case>{{20, 30, Algorithm::kBruck},
                         {40, 500, Algorithm::kTiered},
                         {0, 100, Algorithm::kRing},
                         {51, 51, Algorithm::kBinomial},
                         {900, 5000, Algorithm::kDirect},
                         {0, SIZE_MAX, Algorithm::kBruck},
                         {2000, 3000, Algorithm::kHalving}}) {
    for (const int ranks : {3, 6}) {
      const AlgorithmTable changed =
          table.with(Collective::kAllReduce, first, last, algorithm, ranks);
      for (const std::size_t bytes :
           {0u,   19u,  20u,  25u,  30u,  31u,  39u,   40u,   50u,   51u,  52u,
            100u, 101u, 500u, 501u, 899u, 900u, 1000u, 1001u, 2500u, 9999u}) {
        const Algorithm expected = first <= bytes && bytes <= last
                                       ? algorithm
                                       : table.choose(Collective::kAllReduce, bytes, ranks);
        EXPECT_EQ(changed.choose(Collective::kAllReduce, bytes, ranks), expected)
            << first << " to " << last << ", " << bytes << " bytes, " << ranks << " ranks";
      }
      EXPECT_EQ(changed.choose(Collective::kAllGather, 10, ranks), Algorithm::kBruck);
    }
  }
}

// The norms of a block of width 4096 are 32 KiB. algorithms_test counts what is really sent.
TEST(AlgorithmTable, NormsAmongManyRanksCostTheLogarithm) {
  constexpr std::size_t kNorms = 2 * 4096 * sizeof(float);
  for (const int ranks : {64, 1000, 1024, 4096}) {
    EXPECT_EQ(AlgorithmTable().choose(Collective::kAllReduce, kNorms, ranks), Algorithm::kDoubling);
    const Sent sent = sent_by_doubling(ranks, kNorms);
    print_line(fmt::format(
        "all_reduce of {} bytes among {} ranks: at most {} messages and {} bytes "
        "from a rank; bytes x ranks would be {}",
        kNorms, ranks, sent.messages, sent.bytes, kNorms * static_cast<std::size_t>(ranks - 1)));
    const bool folds = !std::has_single_bit(static_cast<unsigned>(ranks));
    const auto log2 = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks)) - 1);
    EXPECT_EQ(sent.messages, log2 + (folds ? 1 : 0));
    EXPECT_EQ(sent.bytes, sent.messages * kNorms);
  }
}

// Every message of recursive doubling has its receiver, in the same round, and every rank has the
// whole sum in the end.
void expect_agreement(int ranks, const RankBlocks* blocks) {
  std::vector<DoublingPlan> plans;
  std::vector<std::set<int>> known;  // whose contributions a rank's partial result holds
  for (int rank = 0; rank < ranks; ++rank) {
    plans.emplace_back(rank, SumTree(ranks, blocks));
    known.push_back({rank});
  }
  const auto at = [&](int rank) -> auto& {
    return plans[static_cast<std::size_t>(rank)];
  };
  const auto known_at = [&](int rank) -> auto& {
    return known[static_cast<std::size_t>(rank)];
  };
  for (int rank = 0; rank < ranks; ++rank) {
    if (!at(rank).has_partner()) continue;
    EXPECT_EQ(at(at(rank).partner).partner, rank);
    EXPECT_NE(at(at(rank).partner).has_term, at(rank).has_term);
    if (at(rank).has_term) known_at(rank).insert(at(rank).partner);
  }
  const std::size_t rounds = at(ranks - 1).rounds.size();  // of a term that is no pair
  for (std::size_t round = 0; round < rounds; ++round) {
    // The loop changes `known` by way of known_at.
    const auto before = known;  // NOLINT(performance-unnecessary-copy-initialization)
    for (int rank = 0; rank < ranks; ++rank) {
      if (!at(rank).has_term) continue;
      const DoublingPlan::Round& mine = at(rank).rounds.at(round);
      EXPECT_EQ(at(mine.peer).rounds.at(round).peer, rank);
      EXPECT_EQ(mine.is_left, rank < mine.peer);
      const auto& theirs = before[static_cast<std::size_t>(mine.peer)];
      known_at(rank).insert(theirs.begin(), theirs.end());
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (!at(rank).has_term) continue;
    EXPECT_EQ(at(rank).rounds.size(), rounds);
    EXPECT_EQ(known_at(rank).size(), static_cast<std::size_t>(ranks)) << ranks;
  }
}

TEST(SumTree, TheRanksOfRecursiveDoublingAgree) {
  std::mt19937 random(3);
  for (int ranks = 1; ranks <= 70; ++ranks) {
    expect_agreement(ranks, nullptr);
    std::vector<int> nodes;
    for (int rank = 0; rank < ranks; ++rank) nodes.push_back(static_cast<int>(random() % 9));
    const RankBlocks blocks(ranks, {nodes});
    expect_agreement(ranks, &blocks);
  }
}

// The rank of a pair that is nearer to the next term.
TEST(SumTree, ThePlacesOfRanksSayWhoStandsForAPair) {
  const auto standing = [](int ranks, std::vector<std::vector<int>> tiers) {
    const RankBlocks blocks(ranks, std::move(tiers));
    const SumTree tree(ranks, &blocks);
    std::vector<int> result;
    for (int term = 0; term < tree.terms(); ++term) {
      result.push_back(tree.rank_of(term));
      EXPECT_TRUE(tree.stands_for_term(result.back()));
    }
    return result;
  };
  using Ranks = std::vector<int>;
  EXPECT_EQ(standing(3, {{0, 1, 2}, {0, 0, 1}}), Ranks({0, 2}));
  EXPECT_EQ(standing(3, {{0, 1, 2}, {0, 1, 0}}), Ranks({0, 2}));
  EXPECT_EQ(standing(3, {{0, 1, 2}, {0, 1, 1}}), Ranks({1, 2}));
  EXPECT_EQ(standing(3, {{0, 1, 1}, {0, 0, 0}}), Ranks({1, 2}));  // on one node
  // Terms 0 and 1 of 6 ranks are pairs: rank 1 is beside rank 2, and 2 beside 1.
  EXPECT_EQ(standing(6, {{0, 1, 1, 2, 3, 3}}), Ranks({1, 2, 4, 5}));
  // Who is beside a term after the next one does not stand for that alone: on nodes in turn, 0 and
  // 2 exchange most, on one node.
  EXPECT_EQ(standing(6, {{0, 1, 0, 1, 0, 1}}), Ranks({0, 2, 4, 5}));
  EXPECT_EQ(standing(6, {{0, 3, 1, 2, 3, 4}}), Ranks({0, 2, 4, 5}));
  EXPECT_EQ(standing(4, {{0, 1, 1, 1}}), Ranks({0, 1, 2, 3}));  // no pairs
  EXPECT_EQ(SumTree(3).rank_of(0), 0);
}

// How the contributions of ranks 0, 1, ... are put together, as text.
std::string tree_of(int ranks) {
  const SumTree tree(ranks);
  std::vector<std::string> terms;
  for (int term = 0; term < tree.terms(); ++term) {
    const int rank = tree.first_rank_of(term);
    EXPECT_EQ(tree.term_of(rank), term);
    EXPECT_TRUE(tree.stands_for_term(rank));
    terms.push_back(term < tree.pairs() ? fmt::format("({} {})", rank, rank + 1)
                                        : std::to_string(rank));
  }
  while (terms.size() > 1) {
    std::vector<std::string> next;
    for (std::size_t i = 0; i < terms.size(); i += 2) {
      next.push_back(fmt::format("({} {})", terms[i], terms[i + 1]));
    }
    terms = next;
  }
  return terms[0];
}

TEST(SumTree, IsWhatThePageSays) {
  EXPECT_EQ(tree_of(1), "0");
  EXPECT_EQ(tree_of(3), "((0 1) 2)");
  EXPECT_EQ(tree_of(5), "(((0 1) 2) (3 4))");
  EXPECT_EQ(tree_of(6), "(((0 1) (2 3)) (4 5))");
  EXPECT_EQ(tree_of(7), "(((0 1) (2 3)) ((4 5) 6))");
  EXPECT_EQ(tree_of(8), "(((0 1) (2 3)) ((4 5) (6 7)))");
}

template <class T>
class LocalTree : public ::testing::Test {};
using Types =
    ::testing::Types<float, BFloat16, Half, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(LocalTree, Types);

TYPED_TEST(LocalTree, IsFollowedForEveryNumberOfRanks) {
  using T = TypeParam;
  constexpr DType kType = dtype_of<T>();
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (const std::int64_t count : {1, 7, 511, 512, 1300}) {
      std::vector<std::vector<T>> contributions;
      std::vector<const std::byte*> sources;
      for (int rank = 0; rank < ranks; ++rank) {
        contributions.push_back(testing::values<T>(rank, count));
      }
      for (auto& one : contributions) {
        sources.push_back(reinterpret_cast<const std::byte*>(one.data()));
      }
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        std::vector<T> result(static_cast<std::size_t>(count));
        reduce_tree(op, kType, sources, reinterpret_cast<std::byte*>(result.data()), result.size());
        EXPECT_TRUE(testing::same_bits(result, testing::all_reduced<T>(ranks, count, op)))
            << ranks << " ranks, " << count << " elements";
      }
      // The last is reduced in place, where an all-reduce does it.
      const auto expected = testing::all_reduced<T>(ranks, count, ReduceOp::kSum);
      std::vector<T>& last = contributions.back();
      reduce_tree(ReduceOp::kSum, kType, sources, reinterpret_cast<std::byte*>(last.data()),
                  last.size());
      EXPECT_TRUE(testing::same_bits(last, expected)) << ranks;
    }
  }
}

// A block of bf16 that was added up on the way is not rounded before the end.
TEST(Reduce, PartialResultsStayInFp32) {
  const std::vector<BFloat16> one(3, BFloat16(1.0f)), small(3, BFloat16(0x1p-9f));
  const auto at = [](const auto& x) { return reinterpret_cast<const std::byte*>(x.data()); };
  std::vector<float> left(3), right(3);
  const std::vector<const std::byte*> first = {at(one), at(small)}, second = {at(small), at(small)};
  reduce_tree(ReduceOp::kSum, DType::kBF16, first, DType::kF32,
              reinterpret_cast<std::byte*>(left.data()), 3);
  EXPECT_EQ(left[0], 1.0f + 0x1p-9f);
  reduce_tree(ReduceOp::kSum, DType::kBF16, second, DType::kF32,
              reinterpret_cast<std::byte*>(right.data()), 3);
  std::vector<BFloat16> sum(3);
  const std::vector<const std::byte*> halves = {at(left), at(right)};
  reduce_tree(ReduceOp::kSum, DType::kF32, halves, DType::kBF16,
              reinterpret_cast<std::byte*>(sum.data()), 3);
  for (const BFloat16 x : sum) EXPECT_EQ(static_cast<float>(x), 1.0f + 0x1p-7f);
  EXPECT_EQ(accumulator_of(DType::kF16), DType::kF32);
  EXPECT_EQ(accumulator_of(DType::kF64), DType::kF64);
  EXPECT_THROW(reduce_tree(ReduceOp::kSum, DType::kF64, halves, DType::kF32, nullptr, 0),
               InternalError);
}

// 40000 + 40000 is infinite in fp16, but not in fp32, where 20000 comes out in the end.
TEST(Reduce, FP16AddsInFp32AndRoundsOnce) {
  const std::vector<Half> big(5, Half(40000.0f)), less(5, Half(-60000.0f));
  const std::vector<const std::byte*> sources = {reinterpret_cast<const std::byte*>(big.data()),
                                                 reinterpret_cast<const std::byte*>(big.data()),
                                                 reinterpret_cast<const std::byte*>(less.data())};
  std::vector<Half> sum(5);
  reduce_tree(ReduceOp::kSum, DType::kF16, sources, reinterpret_cast<std::byte*>(sum.data()), 5);
  for (const Half x : sum) EXPECT_EQ(static_cast<float>(x), 20000.0f);
}

TEST(EagerMessages, AreForTcpAlone) {
  const testing::TemporaryFolder adapters;
  for (const char* transports : {static_cast<const char*>(nullptr), "", "all", "rc,self"}) {
    EXPECT_TRUE(tcp_alone(adapters.path(), transports)) << "there is no adapter";
    EXPECT_TRUE(tcp_alone(adapters.path() / "missing", transports));
  }
  std::filesystem::create_directory(adapters.path() / "mlx5_0");
  for (const char* transports : {"tcp", "tcp,self", "sm,tcp,self", "self,tcp,cuda_copy"}) {
    EXPECT_TRUE(tcp_alone(adapters.path(), transports)) << transports;
  }
  for (const char* transports :
       {static_cast<const char*>(nullptr), "", "all", "self", "rc,tcp", "tcp,ud_x", "tcp,dc",
        "ib,tcp", "tcp,rc_mlx5", "^rc,tcp", "tcp,all"}) {
    EXPECT_FALSE(tcp_alone(adapters.path(), transports))
        << (transports == nullptr ? "" : transports);
  }
}

TEST(Reduce, TokensAreNotReduced) {
  EXPECT_THROW(check_reducible(DType::kU16), InternalError);
}

}  // namespace
}  // namespace trireme
