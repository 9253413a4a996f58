// What check_schedule finds in schedules that are damaged in one place.
#include <algorithm>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "trireme/parallel/schedule.h"

namespace trireme::parallel {
namespace {

using Kind = PipelineStep::Kind;
using Payload = PipelineMessage::Payload;

std::string problem_of(const PipelineSchedule& schedule) {
  const ScheduleReport report = check_schedule(schedule);
  EXPECT_EQ(report.ok, report.problem.empty());
  return report.problem;
}

TEST(PipelineChecker, RefusesAMissingReceive) {
  PipelineSchedule schedule = gpipe_schedule(2, 2);
  auto& steps = schedule.steps[1];
  steps.erase(steps.begin());
  EXPECT_EQ(
      problem_of(schedule),
      "stage 1, step 0: the forward of micro-batch 0 runs without its activation from stage 0");
}

TEST(PipelineChecker, RefusesAMissingGradient) {
  PipelineSchedule schedule = one_f_one_b_schedule(2, 2);
  schedule.steps[0][3].receives.clear();
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 4: the backward-input of micro-batch 0 runs without its gradient from "
            "stage 1");
}

TEST(PipelineChecker, RefusesAMissingSend) {
  PipelineSchedule schedule = gpipe_schedule(2, 1);
  schedule.steps[0][1].sends.clear();
  EXPECT_EQ(
      problem_of(schedule),
      "deadlock: stage 0 (step 1) waits for stage 1 to send the gradient of micro-batch 0; stage 1 "
      "(step 0) waits for stage 0 to send the activation of micro-batch 0");
}

TEST(PipelineChecker, RefusesASendThatNobodyReceives) {
  PipelineSchedule schedule = gpipe_schedule(3, 1);
  schedule.steps[1][2].sends.push_back({Payload::kActivation, 0, 0, 0});
  EXPECT_EQ(problem_of(schedule),
            "stage 1, step 2: sends the activation of micro-batch 0 to stage 0, which does not use "
            "it");
  schedule.steps[1][2].sends.back().peer = 2;
  EXPECT_EQ(problem_of(schedule),
            "stage 1, step 2: sends the activation of micro-batch 0 to stage 2 twice");
}

TEST(PipelineChecker, RefusesAReceiveThatIsOfNoUse) {
  PipelineSchedule schedule = gpipe_schedule(3, 1);
  schedule.steps[2][0].receives[0].peer = 0;
  EXPECT_EQ(problem_of(schedule),
            "stage 2, step 0: receives the activation of micro-batch 0 from stage 0, but does not "
            "use it");
  schedule = gpipe_schedule(3, 1);
  schedule.steps[2][0].receives.push_back(schedule.steps[2][0].receives[0]);
  EXPECT_EQ(problem_of(schedule),
            "stage 2, step 0: receives the activation of micro-batch 0 from stage 1 twice");
}

TEST(PipelineChecker, RefusesABackwardOfWhatDoesNotTrain) {
  PipelineSchedule schedule = gpipe_schedule(2, 1);
  schedule.first_backward = 1;
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 1: receives the gradient of micro-batch 0 from stage 1, but does not "
            "use it");
  schedule = without_backward_before(1, gpipe_schedule(2, 1));
  EXPECT_EQ(problem_of(schedule), "");
  schedule.steps[0].push_back({Kind::kBackwardInput, 0, 0, {}, {}});
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 2: the backward-input of micro-batch 0 runs, but nothing up to there "
            "trains");
}

TEST(PipelineChecker, RefusesASendBeforeTheComputation) {
  PipelineSchedule schedule = gpipe_schedule(2, 1);
  std::swap(schedule.steps[0][0], schedule.steps[0][1]);
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 0: sends the activation of micro-batch 0 before it is computed");
}

TEST(PipelineChecker, RefusesSwappedComputations) {
  PipelineSchedule schedule = gpipe_schedule(1, 1);  // F I W
  std::swap(schedule.steps[0][0], schedule.steps[0][1]);
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 0: the backward-input of micro-batch 0 runs before its forward");
  schedule = gpipe_schedule(1, 1);
  std::swap(schedule.steps[0][1], schedule.steps[0][2]);
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 1: the backward-weight of micro-batch 0 runs before its backward-input");
}

// Each chunk has an order of its own: the two chunks have parameters of their own.
TEST(PipelineChecker, RefusesWeightGradientsOfAChunkInAnotherOrder) {
  PipelineSchedule schedule = zb_v_schedule(2, 4);
  auto& steps = schedule.steps[0];
  const auto weights_of = [&](int micro_batch) {
    return std::find_if(steps.begin(), steps.end(), [&](const PipelineStep& step) {
      return step.kind == Kind::kBackwardWeight && step.chunk == 1 &&
             step.micro_batch == micro_batch;
    });
  };
  weights_of(1)->micro_batch = 9;
  weights_of(2)->micro_batch = 1;
  weights_of(9)->micro_batch = 2;
  EXPECT_NE(problem_of(schedule).find("the backward-weight of micro-batch 2, chunk 1 runs before "),
            std::string::npos)
      << problem_of(schedule);
}

// Gradients would add up in another order.
TEST(PipelineChecker, RefusesGradientsInAnotherOrder) {
  PipelineSchedule schedule = gpipe_schedule(1, 2);  // F0 F1 I0 W0 I1 W1
  auto& steps = schedule.steps[0];
  std::swap(steps[2], steps[4]);
  std::swap(steps[3], steps[5]);
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 2: the backward-input of micro-batch 1 runs before that of micro-batch "
            "0");
  schedule = gpipe_schedule(1, 2);
  std::swap(schedule.steps[0][3], schedule.steps[0][4]);
  std::swap(schedule.steps[0][4], schedule.steps[0][5]);  // F0 F1 I0 I1 W1 W0
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 4: the backward-weight of micro-batch 1 runs before that of micro-batch "
            "0");
}

TEST(PipelineChecker, RefusesMessagesInAnotherOrder) {
  PipelineSchedule schedule = gpipe_schedule(2, 2);
  auto& steps = schedule.steps[0];  // F0 E{a0} F1 E{a1} ...
  std::swap(steps[1], steps[2]);    // F0 F1 E{a0} E{a1}: still in order
  EXPECT_EQ(problem_of(schedule), "");
  std::swap(steps[2], steps[3]);
  EXPECT_EQ(problem_of(schedule),
            "lane 0 -> 1: stage 0 sends the activation of micro-batch 1 where stage 1 expects the "
            "activation of micro-batch 0");
}

// Where two neighbours swap an activation for a gradient, one after the other is a deadlock under
// rendezvous sends, though not with buffered ones.
TEST(PipelineChecker, RefusesCrossingSendsThatAreNotFused) {
  PipelineSchedule schedule = one_f_one_b_schedule(2, 2);
  auto& last = schedule.steps[1];  // E F0 E{receive} I0 W0 E{send} ...: receives as late as it can
  last[5].receives = std::exchange(last[2].receives, {});
  last.erase(last.begin() + 2);
  EXPECT_EQ(problem_of(schedule), "");
  for (auto [stage, position] : {std::pair{0, 3}, std::pair{1, 4}}) {
    auto& steps = schedule.steps[static_cast<std::size_t>(stage)];
    PipelineStep receive = steps[static_cast<std::size_t>(position)];
    ASSERT_EQ(receive.kind, Kind::kExchange);
    receive.sends.clear();
    steps[static_cast<std::size_t>(position)].receives.clear();
    steps.insert(steps.begin() + position + 1, receive);
  }
  EXPECT_EQ(problem_of(schedule),
            "deadlock: stage 0 (step 3) waits for stage 1 to receive the activation of micro-batch "
            "1; stage 1 (step 4) waits for stage 0 to receive the gradient of micro-batch 0");
}

TEST(PipelineChecker, RefusesComputationsThatAreTwiceOrNotThere) {
  PipelineSchedule schedule = gpipe_schedule(1, 2);
  schedule.steps[0].push_back(schedule.steps[0].back());
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 6: the backward-weight of micro-batch 1 runs twice");
  schedule.steps[0].resize(5);
  EXPECT_EQ(problem_of(schedule), "stage 0 never runs the backward-weight of micro-batch 1");
  schedule.steps[0].push_back({Kind::kForward, 2, 0, {}, {}});
  EXPECT_EQ(problem_of(schedule),
            "stage 0, step 5: micro-batch 2, chunk 0 is outside of 2 micro-batches and 1 chunks");
}

TEST(PipelineChecker, RefusesListsThatDoNotFitTheSizes) {
  PipelineSchedule schedule = gpipe_schedule(2, 2);
  schedule.steps.pop_back();
  EXPECT_EQ(problem_of(schedule), "there are lists of steps for 1 stages of 2");
  schedule.micro_batches = 0;
  EXPECT_EQ(problem_of(schedule),
            "2 stages, 0 micro-batches and 1 chunks: each must be at least 1");
}

// Any single step dropped from a good schedule must be noticed.
TEST(PipelineChecker, RefusesEverySingleOmission) {
  for (const std::string& name : schedule_names()) {
    const PipelineSchedule good =
        make_pipeline_schedule(name, schedule_layout(name, 3, {}), name == "interleaved" ? 6 : 5);
    for (std::size_t stage = 0; stage < good.steps.size(); ++stage) {
      for (std::size_t i = 0; i < good.steps[stage].size(); ++i) {
        PipelineSchedule broken = good;
        broken.steps[stage].erase(broken.steps[stage].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_NE(problem_of(broken), "") << name << ", stage " << stage << ", step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
