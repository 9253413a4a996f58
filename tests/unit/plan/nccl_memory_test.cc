// What NCCL is estimated to take of a GPU.
#include "trireme/plan/nccl_memory.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/dry_run_testing.h"

namespace trireme::testing {
namespace {

using plan::nccl_memory;
using plan::NcclSetting;

constexpr std::int64_t kMib = std::int64_t{1} << 20;

DryTraffic call(int lane, const std::string& operation, const std::vector<int>& ranks,
                bool on_gpu = true) {
  return {.group = "data",
          .operation = operation,
          .ranks = ranks,
          .calls = 1,
          .bytes = 64,
          .lane = lane,
          .on_gpu = on_gpu};
}

std::int64_t mib(const std::vector<DryTraffic>& traffic, const NcclSetting& setting = {}) {
  return nccl_memory(traffic, 0, setting).bytes / kMib;
}

NcclSetting setting_of(int ranks_of_node, std::optional<int> fewest, std::optional<int> most,
                       std::optional<int> per_peer = {}) {
  return {ranks_of_node, fewest, most, per_peer};
}

// 10 MiB at the receiver, 2 at the sender, or 10 at both of a network; 24 channels.
TEST(NcclMemory, RingsAndTreesHaveTheirBuffers) {
  EXPECT_EQ(mib({call(0, "all_gather", {0, 1})}), 24 * 12);
  EXPECT_EQ(mib({call(0, "all_reduce", {0, 1})}), 24 * 12);
  EXPECT_EQ(mib({call(0, "reduce_scatter", {0, 1, 2, 3})}), 24 * 12);
  EXPECT_EQ(mib({call(0, "all_reduce", {0, 1, 2, 3})}), 3 * 24 * 12);
  EXPECT_EQ(mib({call(0, "all_gather", {0, 8})}), 24 * 20) << "on two nodes";
  EXPECT_EQ(mib({call(0, "all_gather", {0, 1})}, setting_of(1, {}, {})), 24 * 20);
  EXPECT_EQ(mib({call(0, "all_gather", {0, 1, 8, 9})}), 24 * 12);
}

TEST(NcclMemory, OperationsOfACommunicatorShareItsConnections) {
  const std::vector<DryTraffic> one = {call(3, "all_gather", {0, 1, 2}),
                                       call(3, "all_reduce", {0, 1, 2}),
                                       call(3, "broadcast", {0, 1, 2})};
  EXPECT_EQ(mib(one), 3 * 24 * 12);
  EXPECT_EQ(nccl_memory(one, 0, {}).communicators, 1);
  EXPECT_EQ(mib({call(3, "all_gather", {0, 1}), call(4, "all_gather", {0, 1})}), 2 * 24 * 12);
}

TEST(NcclMemory, MessagesHaveChannelsForEachPeer) {
  EXPECT_EQ(mib({call(0, "receive", {1})}), 32 * 10);
  EXPECT_EQ(mib({call(0, "send", {1})}), 32 * 2);
  EXPECT_EQ(mib({call(0, "send", {1}), call(0, "receive", {1}), call(0, "send", {2})}),
            32 * (2 + 10 + 2));
  EXPECT_EQ(mib({call(0, "all_to_all", {0, 1, 2})}), 2 * 32 * 12);
  EXPECT_EQ(mib({call(0, "send", {8})}), 2 * 2 + 24 * 4);
  EXPECT_EQ(mib({call(0, "send", {8})}, setting_of(8, {}, {}, 5)), 5 * 2 + 24 * 4);
}

TEST(NcclMemory, KeysSayHowManyChannels) {
  const std::vector<DryTraffic> gather = {call(0, "all_gather", {0, 1})};
  EXPECT_EQ(mib(gather, setting_of(8, {}, 4)), 4 * 12);
  EXPECT_EQ(mib(gather, setting_of(8, {}, 64)), 24 * 12);
  EXPECT_EQ(mib(gather, setting_of(8, 32, 64)), 32 * 12);
}

TEST(NcclMemory, WhatHostsSayToEachOtherTakesNone) {
  const auto none = nccl_memory(std::vector{call(0, "all_reduce", {0, 1}, false)}, 0, {});
  EXPECT_EQ(none.communicators, 0);
  EXPECT_EQ(none.bytes, 0);
}

TEST(NcclMemory, DryRunsOfGpusCountIt) {
  plan::DryRunInput input = input_of(small_gpt(), {2, 1, 2}, DType::kBF16);
  EXPECT_EQ(plan::dry_run(input, 0).nccl.communicators, 0);
  input.device.gpu_memory = std::int64_t{80} << 30;
  EXPECT_EQ(plan::dry_run(input, 0).nccl.communicators, 0) << "by MPI";
  input.device.nccl = true;
  const plan::NcclMemory memory = plan::dry_run(input, 0).nccl;
  EXPECT_GE(memory.communicators, 2);
  EXPECT_GE(memory.bytes, 2 * 24 * 12 * kMib);
  input.device.nccl_setting.max_channels = 1;
  EXPECT_LT(plan::dry_run(input, 0).nccl.bytes, memory.bytes / 12);
  input.grid = {1, 1, 1};
  set_micro_batches(input, 8);
  EXPECT_EQ(plan::dry_run(input, 0).nccl.communicators, 0);
  EXPECT_EQ(words_on(plan::NcclMemory{
                .communicators = 3, .channels = 24, .ranks_of_node = 8, .bytes = kMib + 1}),
            "NCCL takes about 2 MiB of a GPU besides (an estimate: 3 communicators, 24 channels, "
            "NCCL's usual buffers, 8 ranks a node, with NVLink)");
}

}  // namespace
}  // namespace trireme::testing
