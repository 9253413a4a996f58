// How a step's micro-batches form runs, and when ranks keep whole gradients.
#include "trireme/train/step_setup.h"

#include <gtest/gtest.h>

#include "trireme/train/run_grid.h"

#include "train/run_changes.h"

namespace trireme {
namespace {

struct Case {
  int replicas;
  int micro_batches;
  int stage = 2;
  std::optional<int> group = {};
  std::optional<int> runs = {};
};

Config config_of(const Case& c) {
  Config config;
  config.grid.data = c.replicas;
  config.batch.micro = 1;
  config.batch.global = c.micro_batches;
  config.batch.runs = c.runs;
  config.shard.stage = c.stage;
  config.shard.group = c.group;
  return config;
}

int runs_of(const Case& c) {
  const Config config = config_of(c);
  return batch_runs_of(config, resolve_run_grid(config, c.replicas)).runs;
}

std::string why(const Case& c) {
  const Config config = config_of(c);
  const GridShape grid = resolve_run_grid(config, c.replicas);
  const std::string reason = why_whole_gradients_stay(config, grid);
  EXPECT_EQ(step_options(config, grid).stage.whole_gradients, !reason.empty());
  return reason;
}

TEST(BatchRunsOfConfig, EachMicroBatchIsARunWhereThatSavesMemory) {
  for (const int stage : {2, 3}) {
    EXPECT_EQ(runs_of({2, 4, stage}), 4);
    EXPECT_EQ(why({2, 4, stage}), "");
    EXPECT_EQ(runs_of({4, 32, stage}), 32);  // 3 shards of 1/4
    EXPECT_EQ(runs_of({4, 36, stage}), 0);   // 4 shards
    EXPECT_EQ(runs_of({4, 64, stage}), 0);
    EXPECT_EQ(runs_of({2, 64, stage}), 0);
    EXPECT_EQ(why({2, 64, stage}),
              "sums over the 32 micro-batches of a data replica would take no less (5 shards of "
              "1/2)");
  }
  EXPECT_EQ(runs_of({4, 32, 1}), 0);
  EXPECT_EQ(why({4, 32, 1}), "shard.stage 1 does not divide gradients");
}

// Sums are divided among the ranks that share a copy, not among all replicas.
TEST(BatchRunsOfConfig, TheGroupThatSharesACopyCounts) {
  EXPECT_EQ(runs_of({4, 32, 2, 4}), 32);
  EXPECT_EQ(runs_of({4, 32, 2, 2}), 0);
  EXPECT_EQ(why({4, 32, 2, 2}),
            "sums over the 8 micro-batches of a data replica would take no less (3 shards of 1/2)");
  EXPECT_EQ(runs_of({4, 8, 2, 2}), 8);
  EXPECT_EQ(why({4, 8, 2, 2}), "");
}

TEST(BatchRunsOfConfig, OneRunOfOneMicroBatchKeepsNoWholeGradients) {
  EXPECT_EQ(runs_of({4, 4}), 0);
  EXPECT_EQ(why({4, 4}), "");
  EXPECT_EQ(why({3, 3}), "");
}

TEST(BatchRunsOfConfig, WhatTheUserSetStays) {
  EXPECT_EQ(runs_of({2, 64, 2, {}, 64}), 64);
  EXPECT_EQ(why({2, 64, 2, {}, 64}), "");
  EXPECT_EQ(why({4, 32, 2, {}, 4}), "a run has several micro-batches");
  EXPECT_EQ(why({3, 6}), "3 data replicas are no power of two that divides 6 micro-batches");
  EXPECT_EQ(why({4, 6}), "4 data replicas are no power of two that divides 6 micro-batches");
  EXPECT_EQ(why({3, 6, 2, {}, 6}), "a data replica adds up its runs before it reduces them");
}

// Checkpoints of versions that always had as many runs as data replicas do not record them.
TEST(ChoicesBefore, RunsThatWereNotRecordedAreThoseOfTheConfig) {
  const auto runs_before = [](const Case& c, const char* recorded = nullptr) {
    CheckpointInfo info;
    info.config = config_to_ini(config_of(c));
    if (recorded != nullptr) info.extra["batch_runs"] = recorded;
    info.extra["grid"] = "a grid";
    const auto choices = choices_before(info, "a checkpoint");
    EXPECT_EQ(choices.at("grid"), "a grid");
    return choices.at("batch_runs");
  };
  EXPECT_EQ(runs_before({4, 32}), "4");
  EXPECT_EQ(runs_before({4, 32, 2, {}, 16}), "16");
  EXPECT_EQ(runs_before({4, 32}, "32"), "32");
  CheckpointInfo unreadable;
  unreadable.config = "[batch]\nmacro=1\n";
  EXPECT_TRUE(choices_before(unreadable, "a checkpoint").empty());
}

}  // namespace
}  // namespace trireme
