// The pipeline's executor in orders of events that a seed draws, and under schedules that nobody
// would choose: always the same bits, and what was planted is found.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/process_grid.h"
#include "trireme/parallel/gradient_reducer.h"
#include "trireme/parallel/pipeline_executor.h"
#include "trireme/parallel/schedule.h"

#include "models/gpt/gpt.h"
#include "support/batches.h"
#include "support/comm_values.h"
#include "support/interleavings.h"
#include "support/simulated_network.h"

namespace trireme {
namespace {

using testing::drawn_world;
using testing::expect;
using testing::found_in;
using testing::one_switch;
using testing::search_interleavings;

constexpr int kSeeds = 24;  // of each search, in a short test

// The real blocks and reducer, and what makes the pipeline's schedule.
using MakeSchedule = parallel::PipelineSchedule (*)(int stages, int micro_batches);

// The gradients of each rank: those of its shards, where groups are sharded.
std::vector<std::vector<float>> gradients(const SimulatedWorld::Options& world,
                                          const GridShape& shape, MakeSchedule make_schedule,
                                          parallel::StageOptions options = {}, int layers = 2,
                                          int count = 3) {
  const parallel::PipelineSchedule schedule = make_schedule(shape[Axis::kPipeline], count);
  options.chunks = schedule.layout.chunks;
  options.order = schedule.layout.order;
  std::vector<std::vector<float>> all(static_cast<std::size_t>(shape.ranks()));
  models::GptConfig model = models::gpt_preset("test-gpt");
  model.layers = layers;
  run_simulated_ranks(
      one_switch(shape.ranks()), shape.ranks(), {.world = world}, [&](SimulatedRank& rank) {
        ops::Context ctx = ops::make_cpu_context(1);
        const ProcessGrid grid(rank, shape);
        const parallel::Stage stage(ctx, grid, models::gpt_plan(model), options);
        parallel::GradientReducer reducer(ctx, stage, {.to_shard = stage.sharded()});
        parallel::PipelineExecutor executor(ctx, stage);
        const auto batches = testing::make_batches(ctx, {.vocabulary = 67, .micro = 1, .length = 8},
                                                   count * grid.index(kDataAxes), count,
                                                   /*training=*/true);
        reducer.begin_step(count);
        stage.weights().refresh(ctx);
        executor.train(schedule, batches, reducer);
        reducer.finish_step();
        for (const nn::FlatGroup* group : stage.groups()) {
          const auto found = group->gradient_shard().span<float>();
          auto& mine = all[static_cast<std::size_t>(rank.rank())];
          mine.insert(mine.end(), found.begin(), found.end());
        }
      });
  return all;
}

// 1F1B whose weight gradients wait as long as they can without changing their order: behind the
// next micro-batch's backward-input.
parallel::PipelineSchedule late_weights(int stages, int micro_batches) {
  using enum parallel::PipelineStep::Kind;
  auto schedule = parallel::one_f_one_b_schedule(stages, micro_batches);
  for (auto& steps : schedule.steps) {
    std::vector<parallel::PipelineStep> late, waiting;
    for (const parallel::PipelineStep& step : steps) {
      if (step.kind == kBackwardInput) {
        late.push_back(step);
        std::move(waiting.begin(), waiting.end(), std::back_inserter(late));
        waiting.clear();
      } else {
        (step.kind == kBackwardWeight ? waiting : late).push_back(step);
      }
    }
    std::move(waiting.begin(), waiting.end(), std::back_inserter(late));
    steps = std::move(late);
  }
  return schedule;
}

TEST(PipelineInterleavings, DeferredWeightGradientsHaveTheSameBits) {
  for (const GridShape& shape : {GridShape{1, 2, 2}, GridShape{2, 3, 1}}) {
    ASSERT_EQ(parallel::check_schedule(late_weights(shape[Axis::kPipeline], 3)).problem, "");
    EXPECT_EQ(gradients({}, shape, &late_weights),
              gradients({}, shape, &parallel::one_f_one_b_schedule))
        << shape.to_string();
  }
}

// On one stage the gradients of the two uses of a tied matrix add up in the same order.
TEST(PipelineInterleavings, OnOneStageAllSchedulesHaveTheSameBits) {
  const GridShape shape{1, 1, 1};
  EXPECT_EQ(gradients({}, shape, &parallel::gpipe_schedule),
            gradients({}, shape, &parallel::one_f_one_b_schedule));
}

TEST(PipelineInterleavings, StepsOfAPipelineHaveTheSameBits) {
  const GridShape shape{2, 2, 2};
  for (const MakeSchedule make : {&parallel::gpipe_schedule, &parallel::one_f_one_b_schedule}) {
    const auto expected = gradients({}, shape, make);
    EXPECT_EQ(found_in(kSeeds,
                       [&](std::uint64_t seed) {
                         const auto got = gradients(drawn_world(seed), shape, make);
                         for (std::size_t rank = 0; rank < got.size(); ++rank) {
                           expect(testing::same_bits(got[rank], expected[rank]),
                                  fmt::format("other gradients on rank {}", rank));
                         }
                       }),
              "");
  }
}

// Weights are gathered between the calls of the backward over the same ranks, in an order that all
// of them share, although partial sums of the norms (sequence parallelism) or of shards (two
// copies) arrive at another time on each.
TEST(PipelineInterleavings, StepsWithShardedWeightsHaveTheSameBits) {
  for (GridShape shape : {GridShape{2, 1, 2}, GridShape{4, 1, 1}}) {
    shape[Axis::kShard] = 2;
    shape[Axis::kReplicate] /= 2;
    parallel::StageOptions options{.sequence_parallel = shape[Axis::kTensor] > 1,
                                   .whole_weights = false};
    const MakeSchedule make = &parallel::one_f_one_b_schedule;
    const auto expected = gradients({}, shape, make, options);
    for (const bool whole_gradients : {true, false}) {
      options.whole_gradients = whole_gradients;
      EXPECT_EQ(found_in(kSeeds,
                         [&](std::uint64_t seed) {
                           const auto got = gradients(drawn_world(seed), shape, make, options);
                           for (std::size_t rank = 0; rank < got.size(); ++rank) {
                             expect(testing::same_bits(got[rank], expected[rank]),
                                    fmt::format("other gradients on rank {}", rank));
                           }
                         }),
                "")
          << shape.to_string();
    }
  }
}

// Two chunks, and twice as many micro-batches as stages.
parallel::PipelineSchedule interleaved(int stages, int micro_batches) {
  return parallel::interleaved_schedule(stages, 2, micro_batches);
}

TEST(PipelineInterleavings, StepsOfChunksAndOfZeroBubbleHaveTheSameBits) {
  const GridShape shape{1, 3, 1};
  constexpr int kLayers = 4, kCount = 6;
  for (const MakeSchedule make :
       {&interleaved, &parallel::zb_h1_schedule, &parallel::zb_v_schedule}) {
    const auto expected = gradients({}, shape, make, {}, kLayers, kCount);
    EXPECT_EQ(found_in(kSeeds,
                       [&](std::uint64_t seed) {
                         const auto got =
                             gradients(drawn_world(seed), shape, make, {}, kLayers, kCount);
                         for (std::size_t rank = 0; rank < got.size(); ++rank) {
                           expect(testing::same_bits(got[rank], expected[rank]),
                                  fmt::format("other gradients on rank {}", rank));
                         }
                       }),
              "");
  }
}

// Micro-batch by micro-batch through all parts of the model and back.
parallel::PipelineSchedule in_turn(const parallel::PipelineLayout& layout, int micro_batches) {
  using enum parallel::PipelineStep::Kind;
  std::vector<parallel::PipelineStep> steps;
  for (int m = 0; m < micro_batches; ++m) {
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      steps.push_back({kForward, m, chunk, {}, {}});
    }
    for (int chunk = layout.chunks - 1; chunk >= 0; --chunk) {
      steps.push_back({kBackwardInput, m, chunk, {}, {}});
      steps.push_back({kBackwardWeight, m, chunk, {}, {}});
    }
  }
  parallel::PipelineSchedule schedule{"in turn", layout, micro_batches,
                                      std::vector(static_cast<std::size_t>(layout.stages), steps)};
  parallel::insert_exchanges(schedule);
  return schedule;
}

// Libraries connect in the calls of one reduction, and a second one takes all the memory that
// gradients need, so a start does not make those of every run.
TEST(PipelineInterleavings, ConnectingReducesTwiceHoweverManyRuns) {
  GridShape shape{1, 1, 1};
  shape[Axis::kShard] = 2;
  const auto connecting = [&](int runs) {  // of one micro-batch
    double seconds = 0.0;                  // virtual
    const SimulatedRanksOptions options;
    run_simulated_ranks(one_switch(2), 2, options, [&](SimulatedRank& rank) {
      ops::Context ctx = ops::make_cpu_context(1);
      const ProcessGrid grid(rank, shape);
      const parallel::Stage stage(ctx, grid, models::gpt_plan(models::gpt_preset("test-gpt")),
                                  {.whole_gradients = false});
      parallel::GradientReducer reducer(ctx, stage, {.to_shard = true},
                                        parallel::WorkSplit::even(runs, 2, {runs, true}));
      const double begin = rank.now();
      reducer.connect();
      seconds = rank.now() - begin;
    });
    return seconds;
  };
  const double once = connecting(2);
  EXPECT_GT(once, 0.0);
  EXPECT_NEAR(connecting(16), 2 * once, 0.02 * once);
  EXPECT_NEAR(connecting(64), 2 * once, 0.02 * once);
}

// Gradients by parameter, and what the last part knows: the losses of training and evaluation.
std::map<std::string, std::vector<float>> results_of(const parallel::PipelineSchedule& schedule,
                                                     bool tied) {
  const parallel::PipelineLayout& layout = schedule.layout;
  std::map<std::string, std::vector<float>> all;
  models::GptConfig model = models::gpt_preset("test-gpt");
  model.layers = 6;
  model.tied = tied;
  const SimulatedWorld::Options world;
  run_simulated_ranks(
      one_switch(layout.stages), layout.stages, {.world = world}, [&](SimulatedRank& rank) {
        ops::Context ctx = ops::make_cpu_context(1);
        const ProcessGrid grid(rank, GridShape(1, layout.stages, 1));
        const parallel::Stage stage(ctx, grid, models::gpt_plan(model),
                                    {.chunks = layout.chunks, .order = layout.order});
        parallel::GradientReducer reducer(ctx, stage);
        parallel::PipelineExecutor executor(ctx, stage);
        const int count = schedule.micro_batches;
        const auto batches = [&](bool training) {
          return testing::make_batches(ctx, {.vocabulary = 67, .micro = 1, .length = 8}, 0, count,
                                       training);
        };
        const auto trained = batches(true), evaluated = batches(false);
        reducer.begin_step(count);
        executor.train(schedule, trained, reducer);
        reducer.finish_step();
        executor.forward(evaluated);
        for (const nn::Parameter* parameter : stage.parameters()) {
          const auto found = parameter->gradient().span<float>();
          all[parameter->name()].assign(found.begin(), found.end());
        }
        if (!stage.last()) return;
        for (int m = 0; m < count; ++m) {
          const auto at = static_cast<std::size_t>(m);
          for (const auto& batch : {trained[at], evaluated[at]}) {
            all["loss"].push_back(static_cast<float>(batch.loss_sum.data<double>()[0]));
          }
        }
      });
  return all;
}

TEST(PipelineInterleavings, ChunksHaveTheBitsOfOneStage) {
  using Order = parallel::PipelineLayout::Order;
  for (const bool tied : {false, true}) {
    const auto expected = results_of(in_turn({1, 1}, 5), tied);
    EXPECT_EQ(expected.at("loss").size(), 10u);
    for (const parallel::PipelineLayout& layout :
         {parallel::PipelineLayout{1, 2}, parallel::PipelineLayout{1, 3, Order::kV},
          parallel::PipelineLayout{2, 2, Order::kV}, parallel::PipelineLayout{4, 2, Order::kV},
          parallel::PipelineLayout{2, 2}, parallel::PipelineLayout{2, 3, Order::kV},
          parallel::PipelineLayout{3, 2}}) {
      // Stages that share a matrix add up its two uses at the end.
      const bool apart = layout.stage_of(0) != layout.last_stage();
      if (tied && apart) continue;
      ASSERT_EQ(parallel::check_schedule(in_turn(layout, 5)).problem, "");
      EXPECT_TRUE(results_of(in_turn(layout, 5), tied) == expected)
          << layout.stages << " stages, " << layout.chunks << " chunks";
    }
  }
}

// Except in a matrix that two blocks of one stage share: its uses add up in the schedule's order.
TEST(PipelineInterleavings, AllSchedulesHaveTheBitsOfOneStage) {
  constexpr int kCount = 8;
  for (const bool tied : {false, true}) {
    const auto expected = results_of(in_turn({1, 1}, kCount), tied);
    for (const std::string& name : parallel::schedule_names()) {
      for (const int stages : {2, 4}) {
        const auto layout = parallel::schedule_layout(name, stages, {});
        auto found = results_of(parallel::make_pipeline_schedule(name, layout, kCount), tied);
        if (tied) found["embedding.weight"] = expected.at("embedding.weight");
        for (const auto& [parameter, values] : expected) {
          EXPECT_TRUE(testing::same_bits(found.at(parameter), values))
              << name << ", " << stages << " stages: " << parameter;
        }
      }
    }
  }
}

// Stage 1 expects the gradient of micro-batch 0 together with the activation of micro-batch 1, long
// before stage 2 can make it: that one needs micro-batch 1 from stage 1 first.
parallel::PipelineSchedule early_gradient(int stages, int micro_batches) {
  auto schedule = parallel::gpipe_schedule(stages, micro_batches);
  using enum parallel::PipelineMessage::Payload;
  const parallel::PipelineMessage activation{kActivation, 1, 0, 0}, gradient{kGradient, 0, 0, 2};
  for (parallel::PipelineStep& step : schedule.steps[1]) {
    std::erase(step.receives, gradient);
    if (std::ranges::count(step.receives, activation) > 0) step.receives.push_back(gradient);
  }
  return schedule;
}

// A stage that waited for all messages of an exchange would wait for its own.
TEST(PipelineInterleavings, AComputationWaitsForItsInputAlone) {
  const GridShape shape{1, 3, 1};
  const auto expected = gradients({}, shape, &parallel::gpipe_schedule);
  EXPECT_EQ(found_in(kSeeds,
                     [&](std::uint64_t seed) {
                       expect(gradients(drawn_world(seed), shape, &early_gradient) == expected,
                              "other gradients");
                     }),
            "");
}

// What follows is wrong on purpose.

// Stage 1 takes the first two micro-batches in another order than stage 0 sends them.
parallel::PipelineSchedule another_order(int stages, int micro_batches) {
  auto schedule = parallel::gpipe_schedule(stages, micro_batches);
  const auto swap = [](int& micro_batch) {
    if (micro_batch < 2) micro_batch = 1 - micro_batch;
  };
  for (parallel::PipelineStep& step : schedule.steps[1]) {
    swap(step.micro_batch);
    for (auto& message : step.sends) swap(message.micro_batch);
    for (auto& message : step.receives) swap(message.micro_batch);
  }
  return schedule;
}

// Stage 1 never returns the gradient of the last micro-batch.
parallel::PipelineSchedule lost_gradient(int stages, int micro_batches) {
  auto schedule = parallel::gpipe_schedule(stages, micro_batches);
  for (parallel::PipelineStep& step : schedule.steps[1]) {
    std::erase_if(step.sends,
                  [&](const auto& message) { return message.micro_batch == micro_batches - 1; });
  }
  return schedule;
}

TEST(PipelineInterleavings, FindsAPlantedSchedule) {
  const GridShape shape{1, 2, 1};
  const auto expected = gradients({}, shape, &parallel::gpipe_schedule);
  const auto order = search_interleavings(kSeeds, [&](std::uint64_t seed) {
    expect(gradients(drawn_world(seed), shape, &another_order) == expected, "other gradients");
  });
  ASSERT_TRUE(order.has_value());
  const auto hang = search_interleavings(
      kSeeds, [&](std::uint64_t seed) { gradients(drawn_world(seed), shape, &lost_gradient); });
  ASSERT_TRUE(hang.has_value());
  EXPECT_NE(hang->what.find("rank 0 waits in receive"), std::string::npos) << hang->what;
}

}  // namespace
}  // namespace trireme
