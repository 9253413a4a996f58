#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/partition.h"
#include "trireme/parallel/schedule.h"

namespace trireme::parallel {
namespace {

using Kind = PipelineStep::Kind;
using Payload = PipelineMessage::Payload;

constexpr int kMaxStages = 8, kMaxMicroBatches = 16;

// The position of the n-th exchange of a stage.
std::size_t nth_exchange(const PipelineSchedule& schedule, int stage, int n) {
  const auto& steps = schedule.steps[static_cast<std::size_t>(stage)];
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind == Kind::kExchange && n-- == 0) return i;
  }
  return steps.size();
}

std::string problem_of(const PipelineSchedule& schedule) {
  const ScheduleReport report = check_schedule(schedule);
  EXPECT_EQ(report.ok, report.problem.empty());
  return report.problem;
}

TEST(PipelineSchedule, GPipeIsCompleteAndHoldsAllMicroBatches) {
  for (int p = 1; p <= kMaxStages; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      const ScheduleReport report = check_schedule(gpipe_schedule(p, m));
      ASSERT_TRUE(report.ok) << p << " stages, " << m << " micro-batches: " << report.problem;
      EXPECT_EQ(report.peak_live, std::vector<int>(static_cast<std::size_t>(p), m));
      EXPECT_EQ(report.peak_live, live_micro_batches("gpipe", p, m));
      // GPipe, section 2.3: (p - 1) / (m + p - 1).
      EXPECT_NEAR(report.bubble_fraction, (p - 1.0) / (m + p - 1.0), 1e-12) << p << ", " << m;
    }
  }
}

TEST(PipelineSchedule, OneFOneBIsCompleteAndHoldsNoMoreThanThePipelineIsDeep) {
  for (int p = 1; p <= kMaxStages; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      const ScheduleReport report = check_schedule(one_f_one_b_schedule(p, m));
      ASSERT_TRUE(report.ok) << p << " stages, " << m << " micro-batches: " << report.problem;
      EXPECT_EQ(report.peak_live, live_micro_batches("1f1b", p, m));
      for (int s = 0; s < p; ++s) {
        EXPECT_EQ(report.peak_live[static_cast<std::size_t>(s)], std::min(m, p - s))
            << p << ' ' << m;
      }
      EXPECT_NEAR(report.bubble_fraction, (p - 1.0) / (m + p - 1.0), 1e-12) << p << ", " << m;
    }
  }
}

TEST(PipelineSchedule, APlainBackwardStaysTogether) {
  for (const char* name : {"gpipe", "1f1b"}) {
    const PipelineSchedule schedule = make_pipeline_schedule(name, 4, 6);
    for (const auto& steps : schedule.steps) {
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].kind != Kind::kBackwardInput) continue;
        ASSERT_LT(i + 1, steps.size());
        EXPECT_EQ(steps[i + 1].kind, Kind::kBackwardWeight);
        EXPECT_EQ(steps[i + 1].micro_batch, steps[i].micro_batch);
      }
    }
  }
}

TEST(PipelineSchedule, OneFOneBListOfTwoStages) {
  const PipelineSchedule schedule = one_f_one_b_schedule(2, 2);
  const auto activation = [](int m, int peer) {
    return PipelineMessage{Payload::kActivation, m, 0, peer};
  };
  const auto gradient = [](int m, int peer) {
    return PipelineMessage{Payload::kGradient, m, 0, peer};
  };
  const auto compute = [](Kind kind, int m) { return PipelineStep{kind, m, 0, {}, {}}; };
  using Messages = std::vector<PipelineMessage>;
  const auto exchange = [](Messages sends, Messages receives) {
    return PipelineStep{Kind::kExchange, 0, 0, std::move(sends), std::move(receives)};
  };
  const std::vector<PipelineStep> first = {
      compute(Kind::kForward, 0),        exchange({activation(0, 1)}, {}),
      compute(Kind::kForward, 1),        exchange({activation(1, 1)}, {gradient(0, 1)}),
      compute(Kind::kBackwardInput, 0),  compute(Kind::kBackwardWeight, 0),
      exchange({}, {gradient(1, 1)}),    compute(Kind::kBackwardInput, 1),
      compute(Kind::kBackwardWeight, 1),
  };
  EXPECT_EQ(schedule.steps[0], first);
  EXPECT_EQ(schedule.steps[1][4], exchange({gradient(0, 0)}, {activation(1, 0)}));
}

TEST(PipelineSchedule, CostsAreThoseOfTheCaller) {
  const StepCosts costs{.forward = 2, .backward_input = 3, .backward_weight = 1};
  // Stage 0: F, send; stage 1: F, B, send; stage 0: B.
  EXPECT_DOUBLE_EQ(
      check_schedule(gpipe_schedule(2, 1), {.parts = {costs, costs}, .exchange = 0.5}).makespan,
      2 + 0.5 + 6 + 0.5 + 4);
  EXPECT_EQ(check_schedule(gpipe_schedule(2, 1), {.parts = {costs}}).problem,
            "there are costs for 1 parts of 2");
}

// All of a head's products are in its backward-input, so they cannot fill a bubble.
TEST(PipelineSchedule, AHeadsWeightGradientIsNeverDeferred) {
  const auto block = [](double cost, bool loss) {
    return nn::BlockPlan{.name = "block", .cost = cost, .loss = loss, .build = {}};
  };
  const std::vector<nn::BlockPlan> blocks = {block(1, false), block(2, false), block(4, true)};
  const std::vector<StepCosts> parts = costs_of_parts(blocks, std::vector{0, 1, 3});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].forward, 1);
  EXPECT_EQ(parts[0].backward_input, 1);
  EXPECT_EQ(parts[0].backward_weight, 1);
  EXPECT_EQ(parts[1].forward, 2);
  EXPECT_EQ(parts[1].backward_input, 2 + 3 * 4);
  EXPECT_EQ(parts[1].backward_weight, 2);
  // Stage 0: F; stage 1: F, backward-input; stage 0: backward. Stage 1's W runs beside it.
  PipelineSchedule schedule{"late", {.stages = 2}, 1, {}};
  schedule.steps = {{{Kind::kForward, 0, 0, {}, {}},
                     {Kind::kBackwardInput, 0, 0, {}, {}},
                     {Kind::kBackwardWeight, 0, 0, {}, {}}},
                    {{Kind::kForward, 0, 0, {}, {}}, {Kind::kBackwardInput, 0, 0, {}, {}}}};
  insert_exchanges(schedule);
  schedule.steps[1].push_back({Kind::kBackwardWeight, 0, 0, {}, {}});
  EXPECT_DOUBLE_EQ(check_schedule(schedule, {.parts = parts}).makespan, 1 + 2 + 14 + 2);
}

// Two parts of the model on each stage, computed in the order of the model: room for interleaved
// schedules.
PipelineSchedule two_chunks(int stages,
                            PipelineLayout::Order order = PipelineLayout::Order::kLoop) {
  PipelineSchedule schedule{
      "chunks",
      {stages, 2, order},
      1,
      std::vector<std::vector<PipelineStep>>(static_cast<std::size_t>(stages))};
  for (auto& steps : schedule.steps) {
    for (const int chunk : {0, 1}) steps.push_back({Kind::kForward, 0, chunk, {}, {}});
    for (const int chunk : {1, 0}) {
      steps.push_back({Kind::kBackwardInput, 0, chunk, {}, {}});
      steps.push_back({Kind::kBackwardWeight, 0, chunk, {}, {}});
    }
  }
  insert_exchanges(schedule);
  return schedule;
}

TEST(PipelineSchedule, ChunksPassFromTheLastStageToTheFirst) {
  const ScheduleReport report = check_schedule(two_chunks(2));
  EXPECT_TRUE(report.ok) << report.problem;
  EXPECT_EQ(report.peak_live, (std::vector<int>{2, 2}));
  // On one stage the chunks hand their values on without a message.
  const PipelineSchedule alone = two_chunks(1);
  EXPECT_TRUE(check_schedule(alone).ok);
  EXPECT_EQ(nth_exchange(alone, 0, 0), alone.steps[0].size());
}

// There and back: the last stage keeps its value, and the first ends the forward.
TEST(PipelineSchedule, ChunksComeBackInAV) {
  const PipelineSchedule schedule = two_chunks(3, PipelineLayout::Order::kV);
  const ScheduleReport report = check_schedule(schedule);
  EXPECT_TRUE(report.ok) << report.problem;
  // F0 | send, receive | F1, I1 | send, receive | I0, W1...: the weights stand with their inputs.
  const auto exchanges = [&](std::size_t stage) {
    std::vector<std::size_t> messages;
    for (const PipelineStep& step : schedule.steps[stage]) {
      if (step.kind == Kind::kExchange)
        messages.push_back(step.sends.size() + step.receives.size());
    }
    return messages;
  };
  EXPECT_EQ(exchanges(0), (std::vector<std::size_t>{2, 2}));
  EXPECT_EQ(exchanges(2), (std::vector<std::size_t>{1, 2, 1}));
  EXPECT_EQ(schedule.steps[2][0].receives[0], (PipelineMessage{Payload::kActivation, 0, 0, 1}));
}

TEST(PipelineLayout, EveryPartIsOneChunkOfOneStage) {
  for (const auto order : {PipelineLayout::Order::kLoop, PipelineLayout::Order::kV}) {
    for (int stages = 1; stages <= 4; ++stages) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        const PipelineLayout layout{stages, chunks, order};
        for (int part = 0; part < layout.parts(); ++part) {
          EXPECT_EQ(layout.part(layout.stage_of(part), layout.chunk_of(part)), part);
        }
      }
    }
  }
  EXPECT_EQ((PipelineLayout{4, 2}.stage_of(7)), 3);
  EXPECT_EQ((PipelineLayout{4, 2, PipelineLayout::Order::kV}.stage_of(7)), 0);
}

TEST(PipelineSchedule, ForwardPassesOfAnyChunksAreFreeOfDeadlock) {
  for (const auto order : {PipelineLayout::Order::kLoop, PipelineLayout::Order::kV}) {
    for (int stages = 1; stages <= 4; ++stages) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        for (int m = 1; m <= 9; ++m) {
          const auto report = check_schedule(forward_schedule({stages, chunks, order}, m));
          EXPECT_TRUE(report.ok) << stages << ' ' << chunks << ' ' << m << ": " << report.problem;
        }
      }
    }
  }
}

TEST(PipelineSchedule, DeferredWeightGradientsCountAsLive) {
  PipelineSchedule schedule = gpipe_schedule(1, 2);
  auto& steps = schedule.steps[0];  // F0 F1 I0 W0 I1 W1
  std::swap(steps[1], steps[2]);    // F0 I0 F1 W0 I1 W1
  EXPECT_EQ(check_schedule(schedule).peak_live, std::vector<int>{2});
  std::swap(steps[2], steps[3]);  // F0 I0 W0 F1 I1 W1
  EXPECT_EQ(check_schedule(schedule).peak_live, std::vector<int>{1});
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
  for (const char* name : {"gpipe", "1f1b"}) {
    const PipelineSchedule good = make_pipeline_schedule(name, 4, 5);
    for (std::size_t stage = 0; stage < good.steps.size(); ++stage) {
      for (std::size_t i = 0; i < good.steps[stage].size(); ++i) {
        PipelineSchedule broken = good;
        broken.steps[stage].erase(broken.steps[stage].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_NE(problem_of(broken), "") << name << ", stage " << stage << ", step " << i;
      }
    }
  }
}

TEST(PipelineSchedule, UnknownNamesAndSizesAreErrors) {
  EXPECT_THROW(make_pipeline_schedule("zigzag", 2, 2), ConfigError);
  EXPECT_THROW(gpipe_schedule(0, 2), InternalError);
  EXPECT_THROW(one_f_one_b_schedule(2, 0), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
