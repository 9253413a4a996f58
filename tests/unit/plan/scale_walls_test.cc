// What a rank of thousands does at its start, counted: perf/RESULTS.md, "Walls of scale".
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/log.h"
#include "trireme/comm/dry_rank.h"
#include "trireme/parallel/stage.h"

#include "models/gpt/gpt.h"

namespace trireme::testing {
namespace {

class CountingRank : public DryRank {
 public:
  using DryRank::DryRank;

  std::unique_ptr<Communicator> group(const GroupLabel& label,
                                      const std::vector<int>& ranks) override {
    ++made;
    return DryRank::group(label, ranks);
  }

  int made = 0;  // communicators
};

// Layers of a Llama with two heads of keys and values, each of which some tensor ranks hold.
models::GptConfig model_of_copied_heads(int layers) {
  return {.layers = layers,
          .width = 64,
          .heads = 8,
          .kv_heads = 2,
          .hidden = 64,
          .vocabulary = 320,
          .context = 64,
          .tied = false};
}

TEST(ScaleWalls, CommunicatorsForCopiedHeadsDoNotGrow) {
  constexpr int kTensor = 8;
  for (const auto& [ranks, stages] : {std::pair(64, 4), std::pair(4096, 8)}) {
    for (const int layers : {2, 6}) {
      CountingRank rank({.rank = ranks / 2, .size = ranks, .ranks_of_node = 8});
      const ProcessGrid grid(rank, {ranks / stages / kTensor, stages, kTensor});
      ops::Context ctx = ops::make_dry_context(1);
      const int before = rank.made;
      const parallel::Stage stage(ctx, grid,
                                  models::gpt_plan(model_of_copied_heads(stages * layers)), {});
      const int made = rank.made - before;
      print_line(fmt::format("{} ranks: {} communicators for the copied heads of {} layers", ranks,
                             made, layers));
      EXPECT_EQ(made, 1);
    }
  }
}

// With a shard on each rank, all of them together draw each number once.
TEST(ScaleWalls, ARankDrawsTheInitialValuesOfItsShardAlone) {
  const nn::ModelPlan plan = models::gpt_plan(models::gpt_preset("gpt2-124m"));
  for (const int ranks : {64, 4096}) {
    std::int64_t most = 0;
    for (const int place : {0, 1, ranks / 2, ranks - 1}) {
      DryRank rank({.rank = place, .size = ranks, .ranks_of_node = 8});
      GridShape shape{1, 1, 1};
      shape[Axis::kShard] = ranks;
      const ProcessGrid grid(rank, shape);
      ops::Context ctx = ops::make_cpu_context(1);
      const parallel::Stage stage(
          ctx, grid, plan, {.trains = false, .whole_weights = false, .whole_gradients = false});
      most = std::max(most, stage.drawn());
    }
    print_line(
        fmt::format("{} ranks: at most {} initial values drawn by a rank of the {} of GPT-2 "
                    "124M",
                    ranks, most, plan.parameters));
    EXPECT_GT(most, plan.parameters / ranks * 9 / 10);
    EXPECT_LT(most, plan.parameters / ranks * 11 / 10);
  }
}

}  // namespace
}  // namespace trireme::testing
