#include "trireme/plan/campaign.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/plan/checkpoint_interval.h"

#include "campaign_inputs.h"
#include "support/message_of.h"

namespace trireme::plan {
namespace {

using testing::message_of;

TEST(Campaign, WithoutFailuresItIsExact) {
  CampaignInput input = small_input();
  const Campaign one = plan_campaign(input);
  EXPECT_EQ(one.steps, 1000);
  EXPECT_EQ(one.jobs, 1);
  EXPECT_DOUBLE_EQ(one.checkpoint_seconds, 10.0);
  EXPECT_DOUBLE_EQ(one.checkpoints, 10.0);
  // 60 s of starting, 2000 of steps, a checkpoint after every 100 steps, the last at the end.
  EXPECT_DOUBLE_EQ(one.seconds.expected, 60.0 + 2000.0 + 100.0);
  EXPECT_DOUBLE_EQ(one.seconds.low, one.seconds.expected);
  EXPECT_DOUBLE_EQ(one.seconds.high, one.seconds.expected);
  EXPECT_DOUBLE_EQ(one.goodput, 2000.0 / 2160.0);
  EXPECT_DOUBLE_EQ(one.node_hours, 4 * 2160.0 / 3600.0);
  EXPECT_DOUBLE_EQ(one.node_hours_per_billion, one.node_hours);
  EXPECT_EQ(one.failures, 0.0);
  EXPECT_FALSE(one.mtbf);
  EXPECT_TRUE(one.remarks.empty());
}

TEST(Campaign, AJobStopsWhereTheTrainerDoes) {
  CampaignInput input = small_input();
  // The most n with 60 + 2 n + 10 floor((n - 1) / 100) + 1.5 10 + 10 <= 3600.
  constexpr std::int64_t kSteps = 1677;
  for (const std::int64_t jobs : {1, 2, 3, 1000}) {
    input.goal.steps = jobs * kSteps;
    const Campaign full = plan_campaign(input);
    EXPECT_EQ(full.jobs, jobs);
    EXPECT_DOUBLE_EQ(full.checkpoints, static_cast<double>(17 * jobs));
    EXPECT_DOUBLE_EQ(full.seconds.expected,
                     static_cast<double>(jobs) * (60.0 + 2.0 * kSteps + 170.0) +
                         600.0 * static_cast<double>(jobs - 1));
    ++input.goal.steps;
    EXPECT_EQ(plan_campaign(input).jobs, jobs + 1);
    EXPECT_EQ(plan_campaign(input).steps_of_job, kSteps);
  }
  // The step during which the signal comes is the last.
  input.grace = 301.0;
  input.checkpoint_every = {0, {}};
  EXPECT_EQ(plan_campaign(input).steps_of_job, (3600 - 301 - 60) / 2 + 1);
  input.job_limit.reset();
  EXPECT_EQ(plan_campaign(input).jobs, 1);
}

TEST(Campaign, TheFirstJobKeepsTimeForASlowCheckpointUntilItHasMeasuredOne) {
  CampaignInput input = small_input();
  input.goal.steps = 100000;
  input.checkpoint_bytes = 400e9;  // 10 s at 40 GB/s; guessed: 2001 s
  input.write_rate = 40e9;
  // 60 + 2 n + 1.5 2001 + 10 <= 3600 for 264 steps: it measures a checkpoint before that, or not.
  input.checkpoint_every = {200, {}};
  EXPECT_EQ(plan_campaign(input).steps_of_job, 1717);
  EXPECT_TRUE(plan_campaign(input).remarks.empty());
  input.checkpoint_every = {264, {}};
  // Later jobs know the last checkpoint's time: 60 + 2 n + 10 floor((n - 1) / 264) + 25 <= 3600.
  const Campaign campaign = plan_campaign(input);
  EXPECT_EQ(campaign.steps_of_job, 1727);
  EXPECT_EQ(campaign.jobs, 1 + (100000 - 264 + 1726) / 1727);
  ASSERT_EQ(campaign.remarks.size(), 1u);
  EXPECT_NE(campaign.remarks.front().find("it stops after 264 steps"), std::string::npos);
}

TEST(Campaign, AskedByTokensOrEpochs) {
  CampaignInput input = small_input();
  input.goal = {.steps = 0, .units = 1e9, .epochs = 0.0, .units_of_data = 0.0};
  EXPECT_EQ(plan_campaign(input).steps, 1000);
  input.goal.units = 1e9 + 1;
  EXPECT_EQ(plan_campaign(input).steps, 1001);
  input.goal = {.steps = 0, .units = 0.0, .epochs = 2.5, .units_of_data = 4e8};
  EXPECT_EQ(plan_campaign(input).steps, 1000);
}

TEST(Campaign, CheckpointsComeAsTheTrainersRuleSays) {
  CampaignInput input = small_input();
  input.mtbf = 24 * 3600.0;
  input.checkpoint_every = {};
  const Campaign by_rule = plan_campaign(input);
  EXPECT_EQ(by_rule.checkpoint_every, best_steps_between_checkpoints(10.0, 24 * 3600.0, 2.0));
  // It loses less than other intervals do.
  input.goal.steps = 200000;
  input.job_limit.reset();
  const double best = plan_campaign(input).seconds.expected;
  for (const double factor : {0.5, 2.0}) {
    const auto steps = static_cast<double>(by_rule.checkpoint_every);
    input.checkpoint_every = {static_cast<std::int64_t>(factor * steps), {}};
    EXPECT_GT(plan_campaign(input).seconds.expected, best);
  }
  input.checkpoint_every = {{}, 300.0};
  EXPECT_EQ(plan_campaign(input).checkpoint_every, 150);
}

TEST(Campaign, WorkThatBeginsAnewAfterEachFailureTakesDalysTime) {
  CampaignInput input = small_input();
  input.job_limit.reset();
  input.checkpoint_every = {0, {}};
  input.mtbf = 1500.0;  // less than the work, 2000 s and a checkpoint of 10
  const Campaign campaign = plan_campaign(input);
  const double m = 1500.0, start = 60.0 / m, work = 2010.0 / m, notice = 60.0;
  const double all = (m + notice) * (std::exp(start) - 1 + std::exp(start) * (std::exp(work) - 1));
  EXPECT_NEAR(campaign.seconds.expected / all, 1.0, 1e-12);
  EXPECT_NEAR(campaign.times.repeated, m * (std::exp(work) - 1) - 2010.0, 1e-6);
  // A failure ends every attempt but the last of the start and of the work.
  EXPECT_NEAR(campaign.failures, std::exp(start + work) - 1, 1e-9);
}

TEST(Campaign, ANodesFailuresAreAsManyTimesAsOften) {
  CampaignInput input = failing_input(10000.0);
  const Campaign of_job = plan_campaign(input);
  input.mtbf.reset();
  input.node_mtbf = 40000.0;
  EXPECT_DOUBLE_EQ(plan_campaign(input).seconds.expected, of_job.seconds.expected);
  EXPECT_DOUBLE_EQ(*plan_campaign(input).mtbf, 10000.0);
}

TEST(Campaign, EvaluationsTakeTheirShare) {
  CampaignInput input = small_input();
  input.evaluate_every = 50;
  input.evaluation_steps = 5.0;
  const Campaign campaign = plan_campaign(input);
  EXPECT_DOUBLE_EQ(campaign.times.evaluation, 0.1 * campaign.times.computing);
  EXPECT_DOUBLE_EQ(campaign.seconds.expected, 2360.0);
}

TEST(Campaign, DiskHoldsKeptCheckpointsAndTheNextOne) {
  CampaignInput input = small_input();
  const Campaign campaign = plan_campaign(input);
  EXPECT_GT(campaign.disk, 3 * 2e9);
  EXPECT_LT(campaign.disk, 3 * 2e9 + 1e6);
  EXPECT_DOUBLE_EQ(campaign.most_disk - campaign.disk, 2 * 2e9);
  input.goal.steps = 10;  // one checkpoint
  const Campaign one = plan_campaign(input);
  EXPECT_LT(one.disk, 2e9 + 1e6);
  EXPECT_DOUBLE_EQ(one.most_disk, one.disk);
}

TEST(Campaign, MoreReliableFasterLongerIsNeverLater) {
  const double slowest = plan_campaign(failing_input(1800.0)).seconds.expected;
  double before = slowest;
  for (const double mtbf : {2000.0, 3000.0, 1e4, 1e5, 1e6, 1e9}) {
    const double now = plan_campaign(failing_input(mtbf)).seconds.expected;
    EXPECT_LT(now, before);
    before = now;
  }
  CampaignInput input = failing_input(1e4);
  before = INFINITY;
  for (const double rate : {5e7, 1e8, 2e8, 1e9, 1e10, 1e12}) {
    input.write_rate = rate;
    const double now = plan_campaign(input).seconds.expected;
    EXPECT_LT(now, before);
    before = now;
  }
  input = failing_input(1e4);
  before = INFINITY;
  for (double limit = 1800.0; limit < 1e6; limit *= 2) {
    input.job_limit = limit;
    const Campaign now = plan_campaign(input);
    EXPECT_LE(now.seconds.expected, before);
    EXPECT_TRUE(now.jobs == 1 || now.seconds.expected < before);
    before = now.seconds.expected;
  }
  EXPECT_LT(before, slowest);
}

TEST(Campaign, TheStepsIntervalBecomesThatOfTheDate) {
  CampaignInput input = small_input();
  input.step_seconds = {1.8, 2.0, 2.5};
  input.begin = 1e9;
  const Campaign campaign = plan_campaign(input);
  EXPECT_DOUBLE_EQ(campaign.seconds.low, 60.0 + 1800.0 + 100.0);
  EXPECT_DOUBLE_EQ(campaign.seconds.high, 60.0 + 2500.0 + 100.0);
  EXPECT_DOUBLE_EQ(campaign.end.expected, 1e9 + 2160.0);
  // Failures widen it to both sides.
  CampaignInput failing = failing_input(7200.0);
  const Estimate alone = plan_campaign(failing).seconds;
  failing.step_seconds = {1.99, 2.0, 2.01};
  const Estimate both = plan_campaign(failing).seconds;
  EXPECT_LT(both.low, alone.low);
  EXPECT_GT(both.high, alone.high);
  EXPECT_LT(alone.low, alone.expected);
}

TEST(Campaign, HugeRequestsHaveFiniteAnswers) {
  CampaignInput input = failing_input(86400.0);
  input.goal = {.steps = 0, .units = 1e18, .epochs = 0.0, .units_of_data = 0.0};
  const Campaign campaign = plan_campaign(input);
  EXPECT_EQ(campaign.steps, 1000000000000);
  EXPECT_GT(campaign.jobs, 1000000);
  EXPECT_TRUE(std::isfinite(campaign.seconds.high));
  EXPECT_NE(campaign_lines(input, campaign)[3].find("after the year 9999"), std::string::npos);
  input.units_of_step = 1.0;
  EXPECT_EQ(message_of([&] { plan_campaign(input); }),
            "would not end: more than 1e+15 s, with a failure every 1 d 00 h and a checkpoint "
            "every 100 steps");
  input.goal.units = 1e30;
  EXPECT_EQ(message_of([&] { plan_campaign(input); }), "1e+30 tokens are more than 9 10^18 steps");
  input = failing_input(86400.0);
  input.job_limit.reset();
  input.checkpoint_every = {0, {}};
  input.goal.steps = 1000000000;
  EXPECT_NE(message_of([&] { plan_campaign(input); }).find("would not end"), std::string::npos);
}

struct Refused {
  const char* says;
  void (*change)(CampaignInput&);
};

TEST(Campaign, WhatCannotBeIsRefused) {
  const std::vector<Refused> cases = {
      {"a step of 1 h 06 min is too long for a job's time limit of 1 h 00 min",
       [](CampaignInput& in) {
         in.step_seconds = {4000.0, 4000.0, 4000.0};
       }},
      {"a start of 1 h 50 min, with reading the checkpoint, is too long",
       [](CampaignInput& in) { in.checkpoint_bytes = 1.31e12; }},
      {"a checkpoint of 1 h 49 min are too long",
       [](CampaignInput& in) {
         in.checkpoint_bytes = 1.31e12;
         in.read_rate = 1e12;
       }},
      {"a job's time limit of 0 leaves no time", [](CampaignInput& in) { in.job_limit = 0.0; }},
      {"job.grace, 3600 s, must be below", [](CampaignInput& in) { in.grace = 3600.0; }},
      {"ask for a number of steps, of tokens, or of epochs",
       [](CampaignInput& in) { in.goal.steps = 0; }},
      {"ask for a number of steps, of tokens, or of epochs",
       [](CampaignInput& in) { in.goal.units = 1e9; }},
      {"an epoch of data without tokens",
       [](CampaignInput& in) {
         in.goal.steps = 0;
         in.goal.epochs = 1.0;
       }},
      {"the tokens of a step must be above 0", [](CampaignInput& in) { in.units_of_step = 0.0; }},
      {"the rate of the file system", [](CampaignInput& in) { in.write_rate = 0.0; }},
      {"checkpoint.every = auto needs checkpoint.mtbf",
       [](CampaignInput& in) { in.checkpoint_every = {}; }},
      {"not both",
       [](CampaignInput& in) {
         in.mtbf = 1e5;
         in.node_mtbf = 1e5;
       }},
      {"the time between failures must be above 0", [](CampaignInput& in) { in.mtbf = 0.0; }},
      {"a failure every 10.00 s comes too often", [](CampaignInput& in) { in.mtbf = 10.0; }},
      {"the seconds of a step must be above 0, and its interval must hold them",
       [](CampaignInput& in) {
         in.step_seconds = {2.0, 1.0, 3.0};
       }},
      {"the seconds of a step", [](CampaignInput& in) { in.step_seconds.high = INFINITY; }},
      {"the seconds of checkpoint.margin", [](CampaignInput& in) { in.queue = NAN; }},
      {"a step has tokens or samples", [](CampaignInput& in) { in.unit = "words"; }},
  };
  for (const Refused& one : cases) {
    CampaignInput input = small_input();
    one.change(input);
    const std::string said = message_of([&] { plan_campaign(input); });
    EXPECT_NE(said.find(one.says), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

TEST(Campaign, SaysWhatItFound) {
  CampaignInput input = small_input();
  input.goal.steps = 2 * 1677;
  input.grace = 11.0;
  input.begin = 1767225600.0;  // 2026-01-01 00:00:00
  const Campaign campaign = plan_campaign(input);
  const std::vector<std::string> lines = campaign_lines(input, campaign);
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[0], "training: 3354 steps of 1 M tokens, 3.35 G tokens in all");
  EXPECT_EQ(lines[1],
            "jobs: 2 jobs of at most 1 h 00 min, 1677 steps each; a checkpoint every 100 steps, "
            "which takes 10.00 s");
  EXPECT_EQ(lines[2], "takes 2 h 09 min (2 h 09 min to 2 h 09 min)");
  EXPECT_EQ(lines[3], "ends 2026-01-01 02:09:28 UTC (2026-01-01 02:09:28 to 2026-01-01 02:09:28)");
  EXPECT_EQ(lines[4],
            "goodput 86.4 %: computing 1 h 51 min (86.4 %), checkpoints 5 min 40 s (4.4 %), "
            "starts 2 min 00 s (1.5 %), queue 10 min 00 s (7.7 %)");
  EXPECT_EQ(lines[5], "node-hours: 7.96, 2.37 per billion tokens");
  EXPECT_EQ(lines[6], "disk: 5.59 GiB, at most 9.31 GiB while a checkpoint is written");
  EXPECT_EQ(lines[7],
            "a step and a checkpoint take 12.00 s, but the signal comes 11.00 s before the limit: "
            "a job that cannot learn its end from Slurm would lose its last steps");
  const Json json = Json::parse(campaign_json(input, campaign).dump());
  EXPECT_EQ(json.at("jobs").integer(), 2);
  EXPECT_DOUBLE_EQ(json.at("whole_s").at("expected").number(), campaign.seconds.expected);
  EXPECT_DOUBLE_EQ(json.at("times_s").at("repeated_work").number(), 0.0);
  EXPECT_DOUBLE_EQ(json.at("end").at("expected").number(), campaign.end.expected);
  EXPECT_EQ(json.at("mtbf_s").dump(), "null");
}

}  // namespace
}  // namespace trireme::plan
