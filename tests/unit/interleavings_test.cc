// Orders of events that a seed draws: every collective and the pipeline's executor are right in all
// of them, and what was planted is found and named with its seed.
#include "support/interleavings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/comm/process_grid.h"

#include "support/comm_values.h"
#include "support/equality.h"
#include "support/simulated_network.h"

namespace trireme {
namespace {

using testing::drawn_world;
using testing::Draws;
using testing::found_in;
using testing::one_switch;
using testing::search_interleavings;
using testing::values;

constexpr int kSeeds = 24;  // of each search, in a short test

void expect(bool right, const std::string& what) {
  if (!right) throw InternalError(what);
}

// One call of a collective, with what each rank must get.
class Call {
 public:
  virtual ~Call() = default;
  virtual void start() = 0;
  virtual void finish() = 0;  // waits and compares
};

template <class T>
class CollectiveCall final : public Call {
 public:
  // `exact`: reductions add along the tree of the contract.
  CollectiveCall(Communicator& comm, Collective collective, std::int64_t count, bool exact)
      : comm_(comm), collective_(collective), count_(count), exact_(exact), root_(comm.size() / 2) {
    const int rank = comm.rank(), size = comm.size();
    const std::int64_t whole = count * size;
    switch (collective) {
      case Collective::kAllReduce:
        output_ = values<T>(rank, count);
        expected_ = testing::all_reduced<T>(size, count, ReduceOp::kSum);
        break;
      case Collective::kReduceScatter:
        input_ = values<T>(rank, whole);
        expected_ = testing::all_reduced<T>(size, count, ReduceOp::kSum, count * rank);
        break;
      case Collective::kBroadcast:
        output_ = values<T>(rank, count);
        expected_ = values<T>(root_, count);
        break;
      case Collective::kAllGather:
      case Collective::kAllToAll:
      case Collective::kExchange: {
        const bool gathers = collective == Collective::kAllGather;
        input_ = values<T>(rank, gathers ? count : whole);
        for (int from = 0; from < size; ++from) {
          const auto part = values<T>(from, count, gathers ? 0 : count * rank);
          expected_.insert(expected_.end(), part.begin(), part.end());
        }
        break;
      }
    }
    if (output_.empty()) output_.resize(expected_.size());
  }

  void start() override {
    const Tensor in = testing::wrap(input_), out = testing::wrap(output_);
    switch (collective_) {
      case Collective::kAllReduce:
        work_ = comm_.all_reduce(Stream(), out, ReduceOp::kSum);
        break;
      case Collective::kReduceScatter:
        work_ = comm_.reduce_scatter(Stream(), in, out, ReduceOp::kSum);
        break;
      case Collective::kAllGather:
        work_ = comm_.all_gather(Stream(), in, out);
        break;
      case Collective::kBroadcast:
        work_ = comm_.broadcast(Stream(), out, root_);
        break;
      case Collective::kAllToAll:
        work_ = comm_.all_to_all(Stream(), in, out);
        break;
      case Collective::kExchange: {
        // All to all by messages.
        std::vector<Transfer> transfers;
        for (int peer = 0; peer < comm_.size(); ++peer) {
          const std::int64_t begin = count_ * peer;
          transfers.push_back(
              {Transfer::Direction::kReceive, peer, out.flat_range(begin, begin + count_)});
          transfers.push_back(
              {Transfer::Direction::kSend, peer, in.flat_range(begin, begin + count_)});
        }
        work_ = comm_.exchange(Stream(), std::move(transfers));
        break;
      }
    }
  }

  void finish() override {
    work_.wait_host();
    expect(exact_ ? testing::same_bits(output_, expected_) : nearly_the_same(),
           fmt::format("{} of {} elements among {} ranks of {} is wrong on rank {}",
                       name_of(collective_), count_, comm_.size(), comm_.name(), comm_.rank()));
  }

 private:
  // Rounded at every hop, whatever the order. A value is at most 143.
  bool nearly_the_same() const {
    const float most = (sizeof(T) == 2 ? 0.01f : 1e-5f) * 143.0f * static_cast<float>(comm_.size());
    return std::ranges::equal(output_, expected_, [&](const T& got, const T& wanted) {
      return std::abs(static_cast<float>(got) - static_cast<float>(wanted)) <= most;
    });
  }

  Communicator& comm_;
  Collective collective_;
  std::int64_t count_;
  bool exact_;
  int root_;
  std::vector<T> input_, output_, expected_;
  Work work_;
};

// Two calls of the collective on the world and one on half of it, all in flight at once. A rank
// may start and await the calls of the two communicators in any order.
void run_collective(Collective collective, Algorithm algorithm, std::uint64_t seed) {
  Draws draws(seed);
  const int ranks = 1 + draws.below(17);
  const bool exact = keeps_order(collective, algorithm);
  const std::int64_t counts[] = {1 + draws.below(150), 1 + draws.below(20), 1 + draws.below(60)};
  SimulatedRanksOptions options;
  options.world = drawn_world(seed);
  options.ranks_of_node = 1 + draws.below(4);
  options.algorithms =
      AlgorithmTable({{collective, std::numeric_limits<std::size_t>::max(), algorithm}});
  run_simulated_ranks(one_switch(ranks), ranks, options, [&](SimulatedRank& rank) {
    Draws own(seed, rank.rank());
    std::vector<int> members;
    for (int i = rank.rank() % 2; i < ranks; i += 2) members.push_back(i);
    const auto half = rank.group(rank.rank() % 2 == 0 ? "even" : "odd", members);
    std::vector<std::unique_ptr<Call>> calls;
    calls.push_back(
        std::make_unique<CollectiveCall<float>>(rank.world(), collective, counts[0], exact));
    calls.push_back(
        std::make_unique<CollectiveCall<BFloat16>>(rank.world(), collective, counts[1], exact));
    const bool half_first = own.yes();
    calls.insert(
        half_first ? calls.begin() : calls.end(),
        std::make_unique<CollectiveCall<std::int64_t>>(*half, collective, counts[2], exact));
    for (const auto& call : calls) {
      call->start();
      if (own.yes()) rank.compute(1e-6 * own.below(20));
    }
    if (own.yes()) std::ranges::reverse(calls);
    for (const auto& call : calls) call->finish();
  });
}

TEST(Interleavings, EveryCollectiveByEveryAlgorithm) {
  int algorithms = 0;
  for (const Collective collective : kCollectives) {
    for (const Algorithm algorithm : algorithms_of(collective)) {
      ++algorithms;
      EXPECT_EQ(found_in(kSeeds,
                         [&](std::uint64_t seed) { run_collective(collective, algorithm, seed); }),
                "")
          << name_of(algorithm);
    }
  }
  EXPECT_GE(algorithms, 8);
}

TEST(Interleavings, ExchangesAndBarriers) {
  EXPECT_EQ(found_in(4 * kSeeds,
                     [](std::uint64_t seed) {
                       run_collective(Collective::kExchange, Algorithm::kDirect, seed);
                     }),
            "");
  EXPECT_EQ(found_in(4 * kSeeds,
                     [](std::uint64_t seed) {
                       const int ranks = 1 + Draws(seed).below(17);
                       int entered = 0;
                       run_simulated_ranks(one_switch(ranks), ranks, {.world = drawn_world(seed)},
                                           [&](SimulatedRank& rank) {
                                             for (int round = 1; round <= 3; ++round) {
                                               ++entered;
                                               rank.world().barrier().wait_host();
                                               expect(entered >= round * ranks,
                                                      "a rank left a barrier that not all entered");
                                             }
                                           });
                     }),
            "");
}

// The real blocks and reducer, and what makes the pipeline's schedule.
using MakeSchedule = parallel::PipelineSchedule (*)(int stages, int micro_batches);

// Of each rank: of its shards, where groups are sharded.
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

TEST(Interleavings, DeferredWeightGradientsHaveTheSameBits) {
  for (const GridShape& shape : {GridShape{1, 2, 2}, GridShape{2, 3, 1}}) {
    ASSERT_EQ(parallel::check_schedule(late_weights(shape[Axis::kPipeline], 3)).problem, "");
    EXPECT_EQ(gradients({}, shape, &late_weights),
              gradients({}, shape, &parallel::one_f_one_b_schedule))
        << shape.to_string();
  }
}

// On one stage the gradients of the two uses of a tied matrix add up in the same order.
TEST(Interleavings, OnOneStageAllSchedulesHaveTheSameBits) {
  const GridShape shape{1, 1, 1};
  EXPECT_EQ(gradients({}, shape, &parallel::gpipe_schedule),
            gradients({}, shape, &parallel::one_f_one_b_schedule));
}

TEST(Interleavings, StepsOfAPipelineHaveTheSameBits) {
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
TEST(Interleavings, StepsWithShardedWeightsHaveTheSameBits) {
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

TEST(Interleavings, StepsOfChunksAndOfZeroBubbleHaveTheSameBits) {
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
  parallel::PipelineSchedule schedule{
      "in turn", layout, micro_batches,
      std::vector(static_cast<std::size_t>(layout.stages), std::move(steps))};
  parallel::insert_exchanges(schedule);
  return schedule;
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

TEST(Interleavings, ChunksHaveTheBitsOfOneStage) {
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
TEST(Interleavings, AllSchedulesHaveTheBitsOfOneStage) {
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
TEST(Interleavings, AComputationWaitsForItsInputAlone) {
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

TEST(PlantedFaults, InASchedule) {
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

// Rank 2 calls two operations in the other order.
void call_in_another_order(std::uint64_t seed) {
  run_simulated_ranks(one_switch(4), 4, {.world = drawn_world(seed)}, [](SimulatedRank& rank) {
    std::vector<float> a(10, 1.0f), b(10, 2.0f);
    const auto reduce = [&] {
      return rank.world().all_reduce(Stream(), testing::wrap(a), ReduceOp::kSum);
    };
    const auto spread = [&] { return rank.world().broadcast(Stream(), testing::wrap(b), 0); };
    const Work first = rank.rank() == 2 ? spread() : reduce();
    const Work second = rank.rank() == 2 ? reduce() : spread();
    first.wait_host();
    second.wait_host();
    expect(a == std::vector<float>(10, 4.0f) && b == std::vector<float>(10, 2.0f),
           fmt::format("wrong values on rank {}", rank.rank()));
  });
}

// The order of two operations depends on whether a third is done: seldom differs between ranks.
void call_as_timing_says(std::uint64_t seed) {
  run_simulated_ranks(one_switch(2), 2, {.world = drawn_world(seed)}, [](SimulatedRank& rank) {
    const auto pair = rank.group("pair", {0, 1});
    std::vector<float> early(64, 1.0f), a(4, 1.0f), b(8, 1.0f);
    const Work work = pair->all_reduce(Stream(), testing::wrap(early), ReduceOp::kSum);
    rank.compute(2e-5);
    const bool done = work.done();
    auto& first = done ? a : b;
    auto& second = done ? b : a;
    rank.world().all_reduce(Stream(), testing::wrap(first), ReduceOp::kSum).wait_host();
    rank.world().all_reduce(Stream(), testing::wrap(second), ReduceOp::kSum).wait_host();
    work.wait_host();
  });
}

TEST(PlantedFaults, InTheOrderOfCalls) {
  for (const auto& planted : {&call_in_another_order, &call_as_timing_says}) {
    const auto finding = search_interleavings(400, planted);
    ASSERT_TRUE(finding.has_value());
    // The seed alone replays it, to the word.
    try {
      planted(finding->seed);
      FAIL() << "seed " << finding->seed << " does not replay " << finding->what;
    } catch (const InternalError& error) {
      EXPECT_EQ(error.what(), finding->what);
    }
  }
}

// Two ranks add their numbers. `fault` says what is wrong with that.
enum class Fault { kNone, kReadsTooEarly, kOverwritesTooEarly, kFillsTooLate, kEndsTooEarly };

class AddsTwo final : public Task {
 public:
  AddsTwo(TransportPtr transport, std::vector<float>& data, Fault fault)
      : transport_(std::move(transport)), data_(data), sent_(data.size()), fault_(fault) {}

  Step advance() override {
    const std::size_t bytes = data_.size() * sizeof(float);
    const auto fill = [&] { sent_ = data_; };
    if (phase_ == 0) {
      const int peer = 1 - transport_->rank();
      theirs_ = transport_->workspace(bytes);
      if (fault_ != Fault::kFillsTooLate) fill();
      transport_->receive(theirs_.get(), bytes, peer);
      transport_->send(reinterpret_cast<const std::byte*>(sent_.data()), bytes, peer);
      fill();
      ++phase_;
      return Step::kMoved;
    }
    const bool impatient = fault_ == Fault::kReadsTooEarly;
    if (fault_ == Fault::kOverwritesTooEarly) std::ranges::fill(sent_, 0.0f);
    if (phase_ == 1 && (impatient || fault_ == Fault::kEndsTooEarly || transport_->done())) {
      const auto* mine = reinterpret_cast<const std::byte*>(data_.data());
      const std::byte* sources[] = {mine, theirs_.get()};
      if (transport_->rank() == 1) std::swap(sources[0], sources[1]);
      transport_->reduce(ReduceOp::kSum, DType::kF32, sources, DType::kF32,
                         reinterpret_cast<std::byte*>(data_.data()), data_.size());
      ++phase_;
      return fault_ == Fault::kEndsTooEarly ? Step::kDone : Step::kMoved;
    }
    if (phase_ == 2 && transport_->done()) return Step::kDone;
    return Step::kIdle;
  }

 private:
  TransportPtr transport_;
  std::vector<float>& data_;
  std::vector<float> sent_;
  Fault fault_;
  Buffer theirs_;
  int phase_ = 0;
};

void add_two(Fault fault, const SimulatedWorld::Options& options) {
  const auto network = one_switch(2);
  SimulatedWorld world(network, options);
  std::vector<float> data[2] = {values<float>(0, 40), values<float>(1, 40)};
  world.run(2, [&](TransportPtr transport) {
    auto& own = data[transport->rank()];
    return std::make_unique<AddsTwo>(std::move(transport), own, fault);
  });
  const auto expected = testing::all_reduced<float>(2, 40, ReduceOp::kSum);
  for (const auto& result : data) expect(testing::same_bits(result, expected), "wrong sum");
}

// Without a seed they pass: a task is asked only when its messages are done. With one they are
// found in a few orders.
TEST(PlantedFaults, InATask) {
  EXPECT_EQ(found_in(kSeeds, [](std::uint64_t seed) { add_two(Fault::kNone, drawn_world(seed)); }),
            "");
  for (const Fault fault : {Fault::kReadsTooEarly, Fault::kOverwritesTooEarly, Fault::kFillsTooLate,
                            Fault::kEndsTooEarly}) {
    EXPECT_NO_THROW(add_two(fault, {}));
    EXPECT_TRUE(
        search_interleavings(kSeeds, [&](std::uint64_t seed) { add_two(fault, drawn_world(seed)); })
            .has_value())
        << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace trireme
