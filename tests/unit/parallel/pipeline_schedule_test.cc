#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/partition.h"
#include "trireme/parallel/schedule.h"
#include "trireme/parallel/schedule_forecast.h"

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

TEST(PipelineSchedule, GPipeIsCompleteAndHoldsAllMicroBatches) {
  for (int p = 1; p <= kMaxStages; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      const ScheduleReport report = check_schedule(gpipe_schedule(p, m));
      ASSERT_TRUE(report.ok) << p << " stages, " << m << " micro-batches: " << report.problem;
      EXPECT_EQ(report.peak_live, std::vector<int>(static_cast<std::size_t>(p), m));
      EXPECT_EQ(report.peak_live, live_micro_batches("gpipe", {p}, m));
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
      EXPECT_EQ(report.peak_live, live_micro_batches("1f1b", {p}, m));
      for (int s = 0; s < p; ++s) {
        EXPECT_EQ(report.peak_live[static_cast<std::size_t>(s)], std::min(m, p - s))
            << p << ' ' << m;
      }
      EXPECT_NEAR(report.bubble_fraction, (p - 1.0) / (m + p - 1.0), 1e-12) << p << ", " << m;
    }
  }
}

// The time in units of one computation of a chunk, of which a stage has 3 * chunks for each
// micro-batch.
double ticks(const PipelineSchedule& schedule) {
  const ScheduleReport report = check_schedule(schedule);
  EXPECT_EQ(report.problem, "") << schedule.name << ", " << schedule.layout.stages << " stages, "
                                << schedule.micro_batches << " micro-batches";
  return report.makespan;
}

TEST(PipelineSchedule, InterleavedDividesTheBubbleByTheChunks) {
  for (int p = 1; p <= kMaxStages; ++p) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int m = p; m <= kMaxMicroBatches; m += p) {
        const PipelineSchedule schedule = interleaved_schedule(p, chunks, m);
        // Megatron-LM, section 2.2: (p - 1) (forward + backward) of a chunk.
        EXPECT_EQ(ticks(schedule), 3 * chunks * m + 3 * (p - 1)) << p << ' ' << chunks << ' ' << m;
        EXPECT_EQ(check_schedule(schedule).peak_live,
                  live_micro_batches("interleaved", schedule.layout, m));
      }
    }
  }
  EXPECT_THROW(interleaved_schedule(4, 2, 6), InternalError);
}

TEST(PipelineSchedule, InterleavedListOfTwoStages) {
  const auto forwards = [](const PipelineSchedule& schedule, std::size_t stage) {
    std::vector<std::pair<int, int>> found;
    for (const PipelineStep& step : schedule.steps[stage]) {
      if (step.kind == Kind::kForward) found.emplace_back(step.micro_batch, step.chunk);
    }
    return found;
  };
  EXPECT_EQ(forwards(interleaved_schedule(2, 2, 4), 0),
            (std::vector<std::pair<int, int>>{
                {0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {3, 0}, {2, 1}, {3, 1}}));
}

TEST(PipelineSchedule, ZbH1HasAThirdOfTheBubble) {
  for (int p = 1; p <= kMaxStages; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      const PipelineSchedule schedule = zb_h1_schedule(p, m);
      const double made = ticks(schedule);
      // Qi et al., table 2: (p - 1) (forward + input gradient - weight gradient).
      if (m >= p) {
        EXPECT_EQ(made, 3 * m + p - 1) << p << " " << m;
      }
      EXPECT_LE(made, 3 * (m + p - 1)) << p << ' ' << m;
      EXPECT_EQ(check_schedule(schedule).peak_live, live_micro_batches("zb-h1", {p}, m)) << p << m;
    }
  }
}

TEST(PipelineSchedule, ZbVHasTheLeastBubbleThereIs) {
  for (int p : {1, 2, 3, 4, 5, 7, 8, 16}) {
    for (int m = 1; m <= 3 * p + 1; ++m) {
      const PipelineSchedule schedule = zb_v_schedule(p, m);
      const double made = ticks(schedule);
      // The last stage cannot begin before the p - 1 parts in front of it.
      const double least = 6 * m + p - 1;
      if (m >= 2 * p && p <= 8) {
        EXPECT_EQ(made, least) << p << " " << m;
      }
      if (m >= 2 * p) {
        EXPECT_LE(made, least + 6) << p << " " << m;
      }
      EXPECT_LE(made, 6 * (m + p - 1)) << p << ' ' << m;
      EXPECT_EQ(check_schedule(schedule).peak_live, live_micro_batches("zb-v", schedule.layout, m))
          << p << ' ' << m;
    }
  }
}

// The gradient does not wait for the weights' gradients, but where nobody waits for it both run in
// one sweep.
TEST(PipelineSchedule, ZeroBubbleSendsGradientsBeforeTheirWeights) {
  const PipelineSchedule schedule = zb_h1_schedule(3, 6);
  const auto plain = [&](std::size_t stage) {
    const auto& steps = schedule.steps[stage];
    int count = 0;
    for (std::size_t i = 1; i < steps.size(); ++i)
      count += is_plain_backward(steps[i - 1], steps[i]);
    return count;
  };
  EXPECT_GT(plain(0), 0);  // the first stage sends no gradient
  EXPECT_EQ(plain(1), 0);
}

// A slower computation, such as the head's, shifts times but breaks nothing.
TEST(PipelineSchedule, NoCostsDeadlockASchedule) {
  for (const std::string& name : schedule_names()) {
    const PipelineLayout layout = schedule_layout(name, 4, {});
    std::vector<StepCosts> parts(static_cast<std::size_t>(layout.parts()), {1, 1, 1});
    parts.front() = {0.01, 0.01, 0.01};
    parts.back() = {0, 9, 0};
    const PipelineSchedule schedule = make_pipeline_schedule(name, layout, 8);
    const ScheduleReport report = check_schedule(schedule, {.parts = parts, .exchange = 0.25});
    EXPECT_EQ(report.problem, "") << name;
    EXPECT_GE(report.makespan, 8 * 9);
  }
}

// Parts before the first that trains have a forward alone, and no gradient is sent to them.
TEST(PipelineSchedule, NothingComputesABackwardThatNobodyNeeds) {
  for (const std::string& name : schedule_names()) {
    for (int stages = 1; stages <= 5; ++stages) {
      const PipelineLayout layout = schedule_layout(name, stages, {});
      for (const int m : {stages, 2 * stages, 4 * stages}) {
        const ScheduleReport whole = check_schedule(make_pipeline_schedule(name, layout, m));
        for (int first = 0; first < layout.parts(); ++first) {
          const PipelineSchedule schedule = make_pipeline_schedule(name, layout, m, first);
          const ScheduleReport report = check_schedule(schedule);
          ASSERT_TRUE(report.ok) << name << ' ' << stages << ' ' << first << report.problem;
          EXPECT_LE(report.makespan, whole.makespan) << name << ' ' << stages << ' ' << first;
          int backwards = 0, gradients = 0;
          for (const auto& steps : schedule.steps) {
            for (const PipelineStep& step : steps) {
              if (step.kind == Kind::kBackwardInput) ++backwards;
              for (const PipelineMessage& sent : step.sends) {
                if (sent.payload == Payload::kGradient) ++gradients;
              }
            }
          }
          EXPECT_EQ(backwards, m * (layout.parts() - first));
          int crossings = 0;  // of boundaries behind the first part that trains
          for (int part = first + 1; part < layout.parts(); ++part) {
            if (layout.stage_of(part) != layout.stage_of(part - 1)) ++crossings;
          }
          EXPECT_EQ(gradients, m * crossings);
          for (int stage = 0; stage < stages; ++stage) {
            const bool trains = layout.part(stage, layout.chunks - 1) >= first;
            EXPECT_EQ(report.peak_live[static_cast<std::size_t>(stage)] > 0, trains);
          }
        }
      }
    }
  }
}

TEST(PipelineSchedule, NamesHaveTheirLayouts) {
  EXPECT_EQ(schedule_layout("1f1b", 3, {}), (PipelineLayout{3, 1}));
  EXPECT_EQ(schedule_layout("interleaved", 3, {}), (PipelineLayout{3, 2}));
  EXPECT_EQ(schedule_layout("interleaved", 3, 5), (PipelineLayout{3, 5}));
  EXPECT_EQ(schedule_layout("zb-v", 3, 2), (PipelineLayout{3, 2, PipelineLayout::Order::kV}));
  for (const auto& [name, chunks, message] :
       {std::tuple{"1f1b", 2,
                   "grid.chunks is 2, but grid.schedule 1f1b has one chunk on each stage: leave "
                   "grid.chunks out, or use grid.schedule interleaved"},
        std::tuple{"zb-v", 3,
                   "grid.chunks is 3, but grid.schedule zb-v has two chunks on each stage: leave "
                   "grid.chunks out, or use grid.schedule interleaved"}}) {
    try {
      schedule_layout(name, 2, chunks);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      // bad input: `grid.chunks` other than the schedule has | how many the schedule has, and which
      // schedule takes any number | 2
      EXPECT_STREQ(error.what(), message);
    }
  }
  EXPECT_TRUE(takes_micro_batches("interleaved", {4, 2}, 8));
  EXPECT_FALSE(takes_micro_batches("interleaved", {4, 2}, 6));
  EXPECT_TRUE(takes_micro_batches("zb-v", {4, 2, PipelineLayout::Order::kV}, 6));
}

TEST(PipelineSchedule, APlainBackwardStaysTogether) {
  for (const char* name : {"gpipe", "1f1b"}) {
    const PipelineSchedule schedule = make_pipeline_schedule(name, {4}, 6);
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
  // Stage 0 makes its second activation while stage 1 computes the first, and it arrives then.
  const std::vector<PipelineStep> last = {
      exchange({}, {activation(0, 0)}),  compute(Kind::kForward, 0),
      exchange({}, {activation(1, 0)}),  compute(Kind::kBackwardInput, 0),
      compute(Kind::kBackwardWeight, 0), exchange({gradient(0, 0)}, {}),
      compute(Kind::kForward, 1),        compute(Kind::kBackwardInput, 1),
      compute(Kind::kBackwardWeight, 1), exchange({gradient(1, 0)}, {}),
  };
  EXPECT_EQ(schedule.steps[1], last);
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
    return nn::BlockPlan{.name = "block", .flops = cost, .loss = loss, .build = {}};
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
  // Stage 0: F; stage 1: F, backward-input; stage 0: backward. Stage 1's W runs at the same time.
  PipelineSchedule schedule{"late", {.stages = 2}, 1, {}};
  schedule.steps = {{{Kind::kForward, 0, 0, {}, {}},
                     {Kind::kBackwardInput, 0, 0, {}, {}},
                     {Kind::kBackwardWeight, 0, 0, {}, {}}},
                    {{Kind::kForward, 0, 0, {}, {}}, {Kind::kBackwardInput, 0, 0, {}, {}}}};
  insert_exchanges(schedule);
  schedule.steps[1].push_back({Kind::kBackwardWeight, 0, 0, {}, {}});
  EXPECT_DOUBLE_EQ(check_schedule(schedule, {.parts = parts}).makespan, 1 + 2 + 14 + 2);
}

nn::ModelPlan model_of(std::initializer_list<double> costs) {
  nn::ModelPlan model;
  for (const double cost : costs) {
    model.blocks.push_back({.name = "block", .flops = cost, .build = {}});
  }
  model.blocks.back().loss = true;
  return model;
}

std::vector<nn::BlockPlan> blocks_of(std::initializer_list<double> costs) {
  return model_of(costs).blocks;
}

// The forward runs a second time in the backward, but for that of the run that ends in the loss.
TEST(PipelineSchedule, RecomputationIsPartOfTheBackward) {
  const auto parts = costs_of_parts(blocks_of({1, 2, 4, 8, 16}), std::vector{0, 2, 5}, 2);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].forward, 1 + 2);
  EXPECT_EQ(parts[0].backward_input, 2 * (1 + 2));
  EXPECT_EQ(parts[0].backward_weight, 1 + 2);
  // Runs of 4 and 8, and of 16 alone.
  EXPECT_EQ(parts[1].forward, 4 + 8);
  EXPECT_EQ(parts[1].backward_input, 2 * (4 + 8) + 3 * 16);
  EXPECT_EQ(parts[1].backward_weight, 4 + 8);
  const auto one = costs_of_parts(blocks_of({1, 2, 4}), std::vector{0, 3}, 2);
  EXPECT_EQ(one[0].forward, 1 + 2);
  const auto whole = costs_of_parts(blocks_of({1, 2, 4}), std::vector{0, 3}, 3);
  EXPECT_EQ(whole[0].forward, 0);
  EXPECT_EQ(whole[0].backward_input, 2 * (1 + 2) + 3 * 4);
}

// Runs of two of the first three blocks, and what is behind them once.
TEST(PipelineSchedule, ThoseBehindTheRecomputedBlocksRunOnce) {
  const auto parts =
      costs_of_parts(blocks_of({1, 2, 4, 8, 16}), std::vector{0, 5}, 2, {}, std::vector{3});
  EXPECT_EQ(parts[0].forward, 1 + 2 + 4 + 8);
  EXPECT_EQ(parts[0].backward_input, 2 * (1 + 2 + 4) + 8 + 3 * 16);
}

// What is predicted for many micro-batches, of which few are run, is what the checker finds.
TEST(PipelineSchedule, ForecastsAreTheCheckersFindings) {
  const auto model = model_of({0.1, 2, 2, 2, 2, 2, 2, 2, 2, 3});
  const std::optional<int> every_block;
  for (const auto& [micro_batches, recomputed, of_stage] :
       {std::tuple(64, 0, every_block), {64, 2, every_block}, {64, 1, 1}, {1500, 0, every_block}}) {
    const auto all = forecast_schedules(
        4, {}, model,
        {.micro_batches = micro_batches, .recomputed = recomputed, .recomputed_blocks = of_stage});
    ASSERT_EQ(all.size(), schedule_names().size());
    for (const ScheduleForecast& forecast : all) {
      const auto bounds = cut_model(model, forecast.layout);
      const auto ends = ends_of_recomputed(bounds, forecast.layout, of_stage, 0);
      const ScheduleReport report =
          check_schedule(make_pipeline_schedule(forecast.name, forecast.layout, micro_batches),
                         {.parts = costs_of_parts(model.blocks, bounds, recomputed, {}, ends)});
      EXPECT_NEAR(forecast.idle, report.bubble_fraction, 2e-3) << forecast.name;
      EXPECT_GT(forecast.idle, 0);
      const int most = *std::max_element(report.peak_live.begin(), report.peak_live.end());
      EXPECT_EQ(forecast.live * forecast.layout.chunks, most) << forecast.name;
    }
  }
  // Left out: interleaved where its groups do not fit, and chunks where there are too few blocks.
  const auto names = [](const std::vector<ScheduleForecast>& found) {
    std::vector<std::string> all;
    for (const ScheduleForecast& forecast : found) all.push_back(forecast.name);
    return all;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(forecast_schedules(4, {}, model, {.micro_batches = 6})),
            (Names{"gpipe", "1f1b", "zb-h1", "zb-v"}));
  EXPECT_EQ(names(forecast_schedules(6, {}, model, {.micro_batches = 6})),
            (Names{"gpipe", "1f1b", "zb-h1"}));
  EXPECT_THROW(forecast_schedule("1f1b", {11}, model, {.micro_batches = 6}), ConfigError);
}

// With a head as large as that of a small model, values arrive in another order than on the clock
// that places the exchanges. Only where exchanges run one after another does a stage wait for those
// that it does not need yet.
TEST(PipelineSchedule, WaitsForNoMoreThanItsInput) {
  const auto model = model_of({0.1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 39});
  const auto idle = [&](const char* name, bool in_order) {
    return forecast_schedule(name, schedule_layout(name, 4, {}), model,
                             {.micro_batches = 16, .in_order = in_order})
        .idle;
  };
  for (const std::string& name : schedule_names()) {
    EXPECT_LE(idle(name.c_str(), false), idle(name.c_str(), true) + 1e-9) << name;
  }
  EXPECT_LT(idle("zb-h1", false), idle("1f1b", false));
  EXPECT_GT(idle("zb-h1", true), idle("1f1b", true));
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

TEST(PipelineSchedule, UnknownNamesAndSizesAreErrors) {
  EXPECT_THROW(make_pipeline_schedule("zigzag", {2}, 2), ConfigError);
  EXPECT_THROW(gpipe_schedule(0, 2), InternalError);
  EXPECT_THROW(one_f_one_b_schedule(2, 0), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
