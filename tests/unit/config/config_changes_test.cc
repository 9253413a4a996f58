// What counts as a change of a run that goes on.
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/config/config.h"

#include "support/config_testing.h"

namespace trireme {
namespace {

using testing::changes;

TEST(Config, ChangesThatCanChangeResultsAreListed) {
  Config before;
  before.model.keys["dropout"] = "0";
  const std::string ini = config_to_ini(before);
  EXPECT_EQ(changes(ini, before), "");
  Config now = before;
  now.optim.lr = 2e-3;
  now.batch.global = 64;
  now.model.keys["dropout"] = "0.1";
  now.run.seed = 7;
  now.grid.sequence_parallel = true;
  EXPECT_EQ(changes(ini, now),
            "run.seed was 1, is 7; model.dropout was 0, is 0.1; batch.global was 32, is 64; "
            "optim.lr was 0.001, is 0.002; grid.sequence_parallel was false, is true");
  // A float that an earlier version wrote with the digits of a double.
  now = before;
  now.model.keys["dropout"] = "0.1";
  before.model.keys["dropout"] = "0.10000000149011612";
  EXPECT_EQ(changes(config_to_ini(before), now), "");
  before.model.keys["dropout"] = "0.1000001";
  EXPECT_EQ(changes(config_to_ini(before), now), "model.dropout was 0.1000001, is 0.1");
  before.model.keys["dropout"] = "0";
  // Paths, logs, checkpoints and communication; and what is compared by what it comes to.
  now = before;
  now.run.folder = "elsewhere";
  now.run.resume = "never";
  now.run.threads = 3;
  now.run.accept_changes = true;
  now.data.train = {{"moved.h5"}};
  now.log.every = 7;
  now.checkpoint.keep = 9;
  now.comm.timeout = 5;
  now.grid[Axis::kTensor] = 2;
  EXPECT_EQ(changes(ini, now), "");
  now.comm.order = "any";
  now.comm.reduce = "bf16";
  EXPECT_EQ(changes(ini, now), "comm.order was tree, is any; comm.reduce was fp32, is bf16");
}

TEST(Config, WhereSumsDependOnTheAlgorithmTheNetworkAndTheOrderOfRanksCount) {
  const std::string others =
      "grid.order was auto, is rank; comm.network was auto, is none; comm.algorithms was auto, is "
      "all_reduce=tiered";
  for (const bool before_too : {false, true}) {
    for (const auto& [order, reduce] : std::vector<std::pair<std::string, std::string>>{
             {"tree", "fp32"}, {"any", "fp32"}, {"tree", "bf16"}}) {
      Config before;
      Config now;
      now.comm.order = order;
      now.comm.reduce = reduce;
      if (before_too) before = now;
      std::swap(before, now);
      now.grid.order = "rank";
      now.comm.network = "none";
      now.comm.algorithms = "all_reduce=tiered";
      now.comm.tune = true;  // a start that follows has its own measurements in any case
      std::string listed;
      for (const ChangedSetting& change : changed_settings(config_to_ini(before), "before", now)) {
        if (change.name == "comm.order" || change.name == "comm.reduce") continue;
        listed += (listed.empty() ? "" : "; ") + change.text();
        EXPECT_EQ(change.on_change, OnChange::kRounding);
      }
      EXPECT_EQ(listed, order == "tree" && reduce == "fp32" ? "" : others) << order << reduce;
    }
  }
}

TEST(Config, LengthsThatFollowFromTheStepsAreComparedAsWhatTheyComeTo) {
  const Config before;
  Config now = before;
  now.run.steps = 2000;
  EXPECT_EQ(changes(config_to_ini(before), now),
            "run.steps was 1000, is 2000; schedule.decay was 900, is 1900");
  now.run.steps = 500;
  EXPECT_EQ(changes(config_to_ini(before), now),
            "run.steps was 1000, is 500; schedule.warmup was 100, is 50; "
            "schedule.decay was 900, is 450");
  now = before;
  now.schedule.warmup = 100;  // what it was
  EXPECT_EQ(changes(config_to_ini(before), now), "");
  now.schedule.name = "constant";
  EXPECT_EQ(changes(config_to_ini(before), now).find("schedule.name was cosine, is constant"), 0u);
  // The floor that a curve has without being told; earlier versions had no key for it.
  now = before;
  now.schedule.least = 0.1;
  EXPECT_EQ(changes(config_to_ini(before), now), "");
  EXPECT_EQ(changes("[run]\nsteps = 1000\n[schedule]\nname = cosine\n", now), "");
  now.schedule.least = 0;
  EXPECT_EQ(changes(config_to_ini(before), now), "schedule.least was 0.1, is 0");
  now = before;
  now.schedule.name = "cosine_restarts";
  now.schedule.period = 300;
  now.schedule.period_factor = 2;
  EXPECT_EQ(changes(config_to_ini(before), now),
            "schedule.name was cosine, is cosine_restarts; schedule.decay was 900, is auto; "
            "schedule.least was 0.1, is 0; schedule.period was auto, is 300; "
            "schedule.period_factor was 1, is 2");
  // What a table holds counts, not its path (train/run_changes.h).
  now = before;
  now.schedule.name = "table";
  now.schedule.file = "rates.txt";
  EXPECT_EQ(changes(config_to_ini(now), now), "");
  const std::string with_table = config_to_ini(now);
  now.schedule.file = "other.txt";
  EXPECT_EQ(changes(with_table, now), "");
}

// Neither keys that an older version did not have, nor those of a newer one.
TEST(Config, WhatMicroBatchesCameToIsCompared) {
  Config before, now;
  before.batch.micro.settle(16);
  now.batch.micro = 16;
  EXPECT_EQ(changes(config_to_ini(before), now), "");
  EXPECT_EQ(changes(config_to_ini(now), before), "");
  now.batch.micro = 4;  // the default of earlier versions
  EXPECT_EQ(changes(config_to_ini(now), before), "batch.micro was 4, is auto 16");
}

// Models are written without the choices that are as in the first ones.
TEST(Config, ANewChoiceOfTheModelIsAChange) {
  Config now;
  now.model.keys = {{"width", "64"}, {"logit_cap", "30"}, {"residual_scale", "1"}};
  EXPECT_EQ(changes("[model]\nwidth = 64\n", now), "model.logit_cap was auto, is 30");
  // The type of the logits changes results, and makes no other run.
  now.model.keys = {{"width", "64"}, {"logits", "fp32"}};
  EXPECT_EQ(changes("[model]\nwidth = 64\n", now), "");
  now.model.keys["logits"] = "bf16";
  EXPECT_EQ(changes("[model]\nwidth = 64\n", now), "model.logits was auto, is bf16");
  const auto found = changed_settings("[model]\nwidth = 64\n", "x.ini", now);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].on_change, OnChange::kResults);
}

TEST(Config, WhatWasNotRecordedIsNotCompared) {
  Config now;
  now.batch.micro = 2;  // a run records the number
  now.model.keys["width"] = "64";
  now.run.steps = 3;
  EXPECT_EQ(changes("[optim]\nlr = 0.5\nnovel = 3\n[new]\nkey = 1\n", now),
            "optim.lr was 0.5, is 0.001");
}

}  // namespace
}  // namespace trireme
