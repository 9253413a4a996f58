// The parts of the communication layer that need no second rank.
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/comm/launcher.h"
#include "trireme/comm/process_grid.h"

#include "comm/core_sharing.h"
#include "comm/reduce.h"

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
  for (const char* name :
       {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS",
        "SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURMD_NODENAME"}) {
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

TEST(Launcher, SlurmNamesTheNode) {
  set_environment({{"SLURMD_NODENAME", "n3"}});
  EXPECT_EQ(node_name(), "n3");
  set_environment({});
  EXPECT_FALSE(node_name().empty());
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
  EXPECT_EQ(table.choose(Collective::kAllGather, 6, 4), Algorithm::kPairwise);
}

TEST(AlgorithmTable, TheDefaultTurnsAt32KiBAndAtEightRanks) {
  const AlgorithmTable table;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kAllToAll}) {
    EXPECT_EQ(table.choose(collective, 32 << 10, 8), Algorithm::kDirect);
    EXPECT_EQ(table.choose(collective, 32 << 10, 9), Algorithm::kBruck);
    EXPECT_EQ(table.choose(collective, (32 << 10) + 1, 8), Algorithm::kPairwise);
  }
  EXPECT_EQ(table.choose(Collective::kAllReduce, (32 << 10) + 1, 9), Algorithm::kPairwise);
  EXPECT_EQ(table.choose(Collective::kAllGather, 4 << 20, 9), Algorithm::kBruck);
  EXPECT_EQ(table.choose(Collective::kAllGather, (4 << 20) + 1, 9), Algorithm::kPairwise);
  EXPECT_EQ(name_of(Algorithm::kLibrary), "library");
}

// 1 + 2^-9 + 2^-9 + ... : bf16 sums would stay 1 for ever; fp32 rounded once does not.
TEST(Reduce, BF16AddsInFp32AndRoundsOnce) {
  const std::vector<BFloat16> one(5, BFloat16(1.0f));
  const std::vector<BFloat16> small(5, BFloat16(0x1p-9f));
  std::vector<const std::byte*> sources(5, reinterpret_cast<const std::byte*>(small.data()));
  sources[0] = reinterpret_cast<const std::byte*>(one.data());
  std::vector<BFloat16> sum(5);
  reduce_in_order(DType::kBF16, ReduceOp::kSum, sources, reinterpret_cast<std::byte*>(sum.data()),
                  5);
  for (const BFloat16 x : sum) EXPECT_EQ(static_cast<float>(x), 1.0f + 0x1p-7f);
}

// 40000 + 40000 is infinite in fp16, but not in fp32, where 20000 comes out in the end.
TEST(Reduce, FP16AddsInFp32AndRoundsOnce) {
  const std::vector<Half> big(5, Half(40000.0f)), less(5, Half(-60000.0f));
  const std::vector<const std::byte*> sources = {reinterpret_cast<const std::byte*>(big.data()),
                                                 reinterpret_cast<const std::byte*>(big.data()),
                                                 reinterpret_cast<const std::byte*>(less.data())};
  std::vector<Half> sum(5);
  reduce_in_order(DType::kF16, ReduceOp::kSum, sources, reinterpret_cast<std::byte*>(sum.data()),
                  5);
  for (const Half x : sum) EXPECT_EQ(static_cast<float>(x), 20000.0f);
}

// In fp32, (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1.
TEST(Reduce, TheOrderIsTheSources) {
  const float big = 1e8f;
  const float one = 1.0f;
  const float minus = -1e8f;
  const auto at = [](const float& x) { return reinterpret_cast<const std::byte*>(&x); };
  float sum = -1;
  const std::vector<const std::byte*> left = {at(big), at(one), at(minus)};
  reduce_in_order(DType::kF32, ReduceOp::kSum, left, reinterpret_cast<std::byte*>(&sum), 1);
  EXPECT_EQ(sum, 0.0f);
  const std::vector<const std::byte*> right = {at(big), at(minus), at(one)};
  reduce_in_order(DType::kF32, ReduceOp::kSum, right, reinterpret_cast<std::byte*>(&sum), 1);
  EXPECT_EQ(sum, 1.0f);
}

TEST(Reduce, TokensAreNotReduced) {
  EXPECT_THROW(check_reducible(DType::kU16), InternalError);
}

constexpr std::nullopt_t kAny = std::nullopt;

std::string grid_error(const GridRequest& request, int ranks) {
  try {
    return resolve_grid(request, ranks).to_string();
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Grid, WhatIsLeftOutFollows) {
  EXPECT_EQ(resolve_grid({}, 6), (GridShape{6, 1, 1}));
  EXPECT_EQ(resolve_grid({kAny, kAny, 2}, 8), (GridShape{4, 1, 2}));
  EXPECT_EQ(resolve_grid({2, kAny, 2}, 8), (GridShape{2, 2, 2}));
  EXPECT_EQ(resolve_grid({2, 2, kAny}, 8), (GridShape{2, 2, 2}));
  EXPECT_EQ(resolve_grid({2, kAny, kAny}, 8), (GridShape{2, 4, 1}));
  EXPECT_EQ(resolve_grid({1, 1, 1}, 1), (GridShape{1, 1, 1}));
  EXPECT_EQ((GridShape{2, 1, 2}.to_string()), "2 x 1 x 2 (data x pipeline x tensor)");
}

TEST(Grid, WhatDoesNotFitIsToldWhatWould) {
  EXPECT_EQ(grid_error({2, 1, 3}, 4),
            "grid 2 x 1 x 3 needs 6 ranks, but 4 were started: start 6, or with pipeline=1 and "
            "tensor=3 left as they are 3 or 6 ranks would fit");
  EXPECT_EQ(grid_error({2, 1, 2}, 6),
            "grid 2 x 1 x 2 needs 4 ranks, but 6 were started: start 4, or set grid.data=3");
  EXPECT_EQ(
      grid_error({kAny, kAny, 3}, 4),
      "a grid with tensor=3 needs a multiple of 3 ranks, but 4 were started: 3 or 6 would fit");
  EXPECT_EQ(grid_error({kAny, 2, 2}, 1),
            "a grid with pipeline=2 and tensor=2 needs a multiple of 4 ranks, but 1 was started: 4 "
            "would fit");
  EXPECT_EQ(grid_error({kAny, kAny, 0}, 4), "grid.tensor is 0: it must be at least 1");
  EXPECT_EQ(grid_error({-2, kAny, kAny}, 4), "grid.data is -2: it must be at least 1");
  EXPECT_NE(grid_error({2'000'000'000, 2'000'000'000, 9}, 4).find("but 4 were started"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme
