// How a step's micro-batches form runs, when ranks keep whole gradients, and which replicas share
// a copy.
#include "trireme/setup/step_setup.h"

#include <gtest/gtest.h>

#include "trireme/setup/run_grid.h"

#include "models/gpt/gpt.h"
#include "support/message_of.h"
#include "train/run_changes.h"
#include "train/shard_group.h"

namespace trireme {
namespace {

struct Case {
  int replicas;
  int micro_batches;
  int stage = 2;
  std::optional<int> group = {};
  std::optional<int> runs = {};
  int layers = 60;
  bool tied = false;
  int vocabulary = 256;
};

// Has many small blocks, so that those that compute hold little of all gradients.
nn::ModelPlan model_of(const Case& c) {
  models::GptConfig model{.layers = c.layers,
                          .width = 32,
                          .heads = 2,
                          .kv_heads = 2,
                          .hidden = 64,
                          .vocabulary = c.vocabulary,
                          .context = 16};
  model.tied = c.tied;
  return models::gpt_plan(model);
}

Config config_of(const Case& c) {
  Config config;
  config.grid[kDataAxes] = c.replicas;
  config.batch.micro = 1;
  config.batch.global = c.micro_batches;
  config.batch.runs = c.runs;
  config.shard.stage = c.stage;
  config.shard.group = c.group;
  return config;
}

int runs_of(const Case& c) {
  const Config config = config_of(c);
  return step_options(config, model_of(c), resolve_run_grid(config, c.replicas)).work.rule().runs;
}

std::string why(const Case& c) {
  const Config config = config_of(c);
  const GridShape grid = resolve_run_grid(config, c.replicas);
  const nn::ModelPlan model = model_of(c);
  const std::string reason = why_whole_gradients_stay(config, model, grid);
  EXPECT_EQ(step_options(config, model, grid).stage.whole_gradients, !reason.empty());
  return reason;
}

TEST(WorkOfConfig, EachMicroBatchIsARunWhereThatSavesMemory) {
  for (const int stage : {2, 3}) {
    EXPECT_EQ(runs_of({2, 4, stage}), 4);
    EXPECT_EQ(why({2, 4, stage}), "");
    EXPECT_EQ(runs_of({4, 32, stage}), 32);  // 3 shards of 1/4
    EXPECT_EQ(runs_of({4, 36, stage}), 0);   // 4 shards
    EXPECT_EQ(runs_of({4, 64, stage}), 0);
    EXPECT_EQ(runs_of({2, 64, stage}), 0);
    EXPECT_EQ(why({2, 64, stage}),
              "gradients that are reduced after each micro-batch would take no less (5.25 MiB, not "
              "2.06 MiB)");
  }
  EXPECT_EQ(runs_of({4, 32, 1}), 0);
  EXPECT_EQ(why({4, 32, 1}), "shard.stage 1 does not divide gradients");
}

// Sums are divided among the ranks that share a copy, not among all replicas.
TEST(WorkOfConfig, TheGroupThatSharesACopyCounts) {
  EXPECT_EQ(runs_of({4, 32, 2, 4}), 32);
  EXPECT_EQ(runs_of({4, 32, 2, 2}), 0);
  EXPECT_EQ(why({4, 32, 2, 2}),
            "gradients that are reduced after each micro-batch would take no less (3.22 MiB, not "
            "2.06 MiB)");
  EXPECT_EQ(runs_of({4, 8, 2, 2}), 8);
  EXPECT_EQ(why({4, 8, 2, 2}), "");
}

// Both uses of a tied matrix have gradients of their own where each micro-batch is reduced, and
// whole ones as long as they are reduced. Where the matrix is a third of the model, as here, that
// is more than one gradient of all.
TEST(WorkOfConfig, ATiedMatrixCountsTwice) {
  Case c{2, 4};
  c.layers = 96;
  c.vocabulary = 8192;
  EXPECT_EQ(runs_of(c), 4);
  EXPECT_EQ(why(c), "");
  c.tied = true;
  EXPECT_EQ(runs_of(c), 0);
  EXPECT_NE(why(c), "");
  c.layers = 512;
  EXPECT_EQ(runs_of(c), 4);
}

TEST(WorkOfConfig, OneRunOfOneMicroBatchKeepsNoWholeGradients) {
  EXPECT_EQ(runs_of({4, 4}), 0);
  EXPECT_EQ(why({4, 4}), "");
  EXPECT_EQ(why({3, 3}), "");
}

std::string refused_to_join(Config config, int replicas) {
  config.grid[kDataAxes] = replicas;
  return testing::message_of([&] { check_joined_replicas(config, GridShape(replicas, 1, 1)); });
}

// Batch norms over all data replicas.
TEST(JoinedReplicas, DivideTheMicroBatchesOfAStep) {
  EXPECT_EQ(refused_to_join(config_of({1, 12, 0}), 4), "no error");
  EXPECT_EQ(refused_to_join(config_of({1, 12, 0}), 12), "no error");
  // bad input: `train`: `model.batch_norm sync` with data replicas that do not divide the
  // micro-batches | model.batch_norm sync: 8 data replicas do not divide the 12 micro-batches of a
  // step (batch.global 12 / batch.micro 1); 6 would | 2
  EXPECT_EQ(refused_to_join(config_of({1, 12, 0}), 8),
            "model.batch_norm sync: 8 data replicas do not divide the 12 micro-batches of a step "
            "(batch.global 12 / batch.micro 1); 6 would");
}

TEST(JoinedReplicas, TakeMicroBatchesOneByOne) {
  const auto with_runs = [](int runs) { return config_of({1, 24, 0, {}, runs}); };
  EXPECT_EQ(refused_to_join(with_runs(4), 4), "no error");
  EXPECT_EQ(refused_to_join(with_runs(24), 4), "no error");  // in rounds
  // bad input: `train`: `model.batch_norm sync` with another `batch.runs` | model.batch_norm sync
  // deals micro-batches to the 4 data replicas one by one, which cannot be 8 runs (batch.runs):
  // leave it out | 2
  EXPECT_EQ(refused_to_join(with_runs(8), 4),
            "model.batch_norm sync deals micro-batches to the 4 data replicas one by one, which "
            "cannot be 8 runs (batch.runs): leave it out");
  EXPECT_NE(refused_to_join(with_runs(24), 3), "no error");  // no power of two
}

TEST(JoinedReplicas, CannotPromiseTheSameBits) {
  Config config = config_of({1, 12, 0});
  config.run.same_bits = true;
  // bad input: `train`: `run.same_bits` with `model.batch_norm sync` | run.same_bits: statistics
  // over all data replicas (model.batch_norm sync) are others on other grids: take model.batch_norm
  // replica | 2
  EXPECT_EQ(
      refused_to_join(config, 2),
      "run.same_bits: statistics over all data replicas (model.batch_norm sync) are others on "
      "other grids: take model.batch_norm replica");
}

TEST(WorkOfConfig, WhatTheUserSetStays) {
  EXPECT_EQ(runs_of({2, 64, 2, {}, 64}), 64);
  EXPECT_EQ(why({2, 64, 2, {}, 64}), "");
  EXPECT_EQ(why({4, 32, 2, {}, 4}), "a run has several micro-batches");
  EXPECT_EQ(why({3, 6}), "3 data replicas are no power of two that divides 6 micro-batches");
  EXPECT_EQ(why({4, 6}), "4 data replicas are no power of two that divides 6 micro-batches");
  EXPECT_EQ(why({3, 6, 2, {}, 6}), "a data replica adds up its runs before it reduces them");
}

// Nodes of so many ranks on one switch, as a job knows them.
JobNetwork network_of(const std::vector<int>& ranks_of_nodes, double within, double between) {
  std::vector<int> nodes;
  for (std::size_t node = 0; node < ranks_of_nodes.size(); ++node) {
    nodes.insert(nodes.end(), static_cast<std::size_t>(ranks_of_nodes[node]),
                 static_cast<int>(node));
  }
  const auto ranks = static_cast<int>(nodes.size());
  JobNetwork network;
  network.blocks = RankBlocks(ranks, {nodes});
  network.rates.distances = {{.latency = 1e-6, .flow = within, .host = within},
                             {.latency = 1e-6, .flow = between, .host = between}};
  return network;
}

// The numbers of replicas that share a copy, in the order in which they are tried.
std::vector<int> groups_of(const Config& config, const JobNetwork& network, bool on_gpus = false) {
  std::vector<int> groups;
  const GridShape all = resolve_run_grid(config, network.blocks.ranks());
  for (const GridShape& grid : grids_of_shards(config, all, network, on_gpus)) {
    EXPECT_EQ(grid.extent(kDataAxes), all.extent(kDataAxes));
    groups.push_back(grid[Axis::kShard]);
  }
  return groups;
}

TEST(ShardGroup, ReplicasOfANodeShareWhereTheNetworkIsSlower) {
  const JobNetwork slow = network_of({4, 4, 4}, 1e10, 1e9);
  Config config = config_of({.replicas = 12, .micro_batches = 12, .stage = 3});
  EXPECT_EQ(groups_of(config, slow), (std::vector{4, 12}));
  EXPECT_EQ(groups_of(config, network_of({2, 2, 2, 2, 2, 2}, 1e10, 1e9)),
            (std::vector{2, 4, 6, 12}));
  EXPECT_EQ(groups_of(config, network_of({4, 4, 4}, 1e10, 1e10)), std::vector{12});
  EXPECT_EQ(groups_of(config, network_of({4, 4, 4}, 1e10, 1e10), true), (std::vector{4, 12}));
  EXPECT_EQ(groups_of(config, network_of({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1e10, 1e9)),
            std::vector{12});
  EXPECT_EQ(groups_of(config, network_of({3, 5, 4}, 1e10, 1e9)), std::vector{12});
  config.shard.group = 6;
  EXPECT_EQ(groups_of(config, slow), std::vector{6});
  config.shard = {};
  EXPECT_EQ(groups_of(config, slow), std::vector{1});
  // A replica of two ranks: two of them are on a node.
  config = config_of({.replicas = 6, .micro_batches = 6, .stage = 1});
  config.grid[Axis::kTensor] = 2;
  EXPECT_EQ(groups_of(config, slow), (std::vector{2, 6}));
  config = config_of({.replicas = 4, .micro_batches = 4, .stage = 1});
  config.grid[Axis::kTensor] = 3;
  EXPECT_EQ(groups_of(config, slow), std::vector{4});
  // Three quarters of the replicas would not add along the tree.
  config = config_of({.replicas = 8, .micro_batches = 8, .stage = 1});
  config.run.same_bits = true;
  EXPECT_EQ(groups_of(config, network_of({2, 2, 2, 2}, 1e10, 1e9)), (std::vector{2, 4, 8}));
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

TEST(IslandsOfConfig, DivideTheRanks) {
  Config config;
  EXPECT_EQ(ranks_of_island(config, 7), 7);
  config.grid.islands = 4;
  EXPECT_EQ(ranks_of_island(config, 12), 3);
  EXPECT_EQ(testing::message_of([&] { ranks_of_island(config, 6); }),
            "grid.islands is 4, which does not divide 6 ranks into equal islands; 3 would");
  EXPECT_EQ(testing::message_of([&] { ranks_of_island(config, 3); }),
            "grid.islands is 4, which does not divide 3 ranks into equal islands; 3 would");
}

TEST(StepOfConfig, Fp8IsBf16WithOtherProductsOfBlocks) {
  models::GptConfig model = models::gpt_preset("test-gpt");
  model.width = model.hidden = 128;
  for (const std::string precision : {"fp32", "bf16", "fp8"}) {
    Config config = config_of({1, 8});
    config.run.precision = precision;
    const parallel::StepOptions step =
        step_options(config, models::gpt_plan(model), resolve_run_grid(config, 1));
    EXPECT_EQ(step.stage.compute, precision == "fp32" ? DType::kF32 : DType::kBF16);
    EXPECT_EQ(step.stage.block_scaled, precision == "fp8");
  }
}

TEST(WorkOfConfig, SharesFollowTheSpeedsOfTheReplicas) {
  Config config = config_of({3, 8, 1});
  const auto refusal = [&](int ranks = 3) {
    return testing::message_of([&] { resolve_run_grid(config, ranks); });
  };
  config.batch.balance = BatchBalance::by_speed({1, 0.5, 0.5});
  EXPECT_EQ(refusal(), "no error");
  const GridShape grid = resolve_run_grid(config, 3);
  const parallel::StepOptions step = step_options(config, model_of({3, 8}), grid);
  EXPECT_TRUE(step.stage.whole_gradients);
  EXPECT_EQ(step.work.count(0), 4);
  EXPECT_EQ(step.work.count(1), 2);
  EXPECT_EQ(step.work.runs_of_step(), 3);
  config.batch.runs = 3;
  EXPECT_EQ(refusal(), "no error");
  // bad input: `train`: `batch.balance` with `batch.runs` other than the data replicas |
  // batch.balance makes the share of each of the 3 data replicas one run, but batch.runs is 6:
  // leave one out | 2
  config.batch.runs = 6;
  EXPECT_EQ(refusal(),
            "batch.balance makes the share of each of the 3 data replicas one run, but batch.runs "
            "is 6: leave one out");
  config.batch.runs = {};
  // bad input: `train`: `batch.balance` with a speed too few or too many | batch.balance lists 2
  // speeds, but there are 3 data replicas: give one for each | 2
  config.batch.balance = BatchBalance::by_speed({1, 0.5});
  EXPECT_EQ(refusal(),
            "batch.balance lists 2 speeds, but there are 3 data replicas: give one for each");
  // bad input: `train`: a list in `batch.balance` for one data replica | batch.balance lists
  // speeds, but there is one data replica and nothing to balance: leave it out | 2
  config.grid[kDataAxes] = 1;
  EXPECT_EQ(refusal(1),
            "batch.balance lists speeds, but there is one data replica and nothing to balance: "
            "leave it out");
  config.grid[kDataAxes] = 3;
  config.batch.balance = BatchBalance::by_speed({1, 0.5, 0.5});
  config.batch.global = 2;
  EXPECT_EQ(refusal(),
            "2 micro-batches a step (batch.global 2 / batch.micro 1) are fewer than 3 data "
            "replicas: each needs one at least");
  // Interleaved schedules take micro-batches in groups.
  config.batch.global = 8;
  config.grid[Axis::kPipeline] = 2;
  config.grid.schedule = "interleaved";
  EXPECT_EQ(refusal(6), "no error");
  config.batch.balance = BatchBalance::by_speed({2, 2.7, 3});
  // bad input: `train`: shares of `batch.balance` that are no groups of an interleaved schedule |
  // grid.schedule interleaved takes micro-batches in groups of one for each of the 2 stages, but
  // batch.balance gives a data replica 3 a step: give other speeds, or another schedule; ... which
  // the shares of batch.balance auto are not ... | 2
  EXPECT_EQ(refusal(6),
            "grid.schedule interleaved takes micro-batches in groups of one for each of the 2 "
            "stages, but batch.balance gives a data replica 3 a step: give other speeds, or "
            "another schedule");
  config.batch.balance = BatchBalance::automatic();
  EXPECT_EQ(refusal(6),
            "grid.schedule interleaved takes micro-batches in groups of one for each of the 2 "
            "stages, which the shares of batch.balance auto are not: give another schedule, or "
            "leave it out");
}

TEST(WorkOfConfig, MemoryIsCheckedForTheLargestShareThatAutoCanGive) {
  Config config = config_of({3, 12, 1});
  config.batch.balance = BatchBalance::automatic({6, 3, 3});
  const GridShape grid = resolve_run_grid(config, 3);
  const parallel::WorkSplit work = work_of_step(config, grid, {});
  EXPECT_EQ(work.count(0), 6);
  EXPECT_EQ(largest_work(config, work).most(), 8);
  EXPECT_EQ(largest_work(config, work).micro_batches(), 12);
  config.batch.balance = BatchBalance::automatic({6, 3, 2});  // of another batch
  EXPECT_FALSE(work_of_step(config, grid, {}).has_shares());
  config.batch.balance = BatchBalance::by_speed({1, 1, 1});
  EXPECT_EQ(largest_work(config, work_of_step(config, grid, {})).most(), 4);
}

TEST(IslandsOfConfig, MeetByARule) {
  Config config;
  const nn::ModelPlan model = model_of({1, 1});
  EXPECT_FALSE(meeting_rule(config, model));
  config.grid.islands = 2;
  config.sync.fragments = 3;
  const auto outer = meeting_rule(config, model);
  ASSERT_TRUE(outer);
  EXPECT_EQ(outer->rate, 0.7f);
  EXPECT_EQ(outer->momentum, 0.9f);
  EXPECT_EQ(outer->fragments, 3);
  EXPECT_EQ(outer->bits, 32);
  config.sync.outer = "average";
  config.sync.reduce = "int4";
  const auto mean = meeting_rule(config, model);
  ASSERT_TRUE(mean);
  EXPECT_EQ(mean->rate, 1.0f);
  EXPECT_EQ(mean->momentum, 0.0f);
  EXPECT_EQ(mean->bits, 4);
  config.sync.every = 100;
  config.sync.fragments = 63;
  EXPECT_EQ(testing::message_of([&] { meeting_rule(config, model); }),
            "sync.fragments is 63, but the model has 62 blocks");
}

}  // namespace
}  // namespace trireme
