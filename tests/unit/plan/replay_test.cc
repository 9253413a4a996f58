// Replays of small programs, whose times are known, and of recorded steps.
#include "trireme/plan/replay.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/partition.h"
#include "trireme/plan/dry_run.h"

#include "support/dry_run_testing.h"
#include "support/message_of.h"

namespace trireme::testing {
namespace {

using plan::CommunicationCost;
using plan::Replay;
using plan::ReplayCosts;
using plan::ReplayedRank;

// Ranks whose programs a test writes, in a world where rank i is replayed rank i. An operation
// takes its FLOPs as seconds, a communication its bytes.
class World {
 public:
  explicit World(int ranks) : logs_(static_cast<std::size_t>(ranks)) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    for (const char* name : {"data", "pipeline"}) lanes_.push_back({name, all});
    costs.compute = [](const ProgramEntry& entry, const std::string&) { return entry.flops; };
    costs.communicate = [this](const std::string&, const DryLane&, int, int, std::size_t bytes) {
      return CommunicationCost{
          .latency = latency, .flow = static_cast<double>(bytes), .leaves_node = leaves_node};
    };
  }

  static constexpr int kData = 0, kPipeline = 1;
  ReplayCosts costs;
  double latency = 0.0;
  bool leaves_node = false;
  const void* stream = nullptr;  // of what follows

  void compute(int rank, double seconds) {
    log(rank).compute(stream, "matmul", DType::kF32, {}, seconds, 0.0);
  }
  PostedCommunication reduce(int rank, std::size_t seconds) {
    return log(rank).post(stream, "all_reduce", kData, -1, seconds);
  }
  PostedCommunication send(int rank, int to, std::size_t seconds) {
    return log(rank).post(stream, "send", kPipeline, to, seconds);
  }
  PostedCommunication receive(int rank, int from, std::size_t seconds,
                              const PostedCommunication& together = {}) {
    return log(rank).post(stream, "receive", kPipeline, from, seconds, together);
  }
  void wait(int rank, const PostedCommunication& posted) { log(rank).wait(stream, posted); }
  ProgramLog& log(int rank) { return logs_[static_cast<std::size_t>(rank)]; }

  Replay run(std::vector<Trace>* traces = nullptr) {
    programs_.clear();
    for (ProgramLog& log : logs_) programs_.push_back(log.take());
    std::vector<ReplayedRank> ranks;
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      ranks.push_back({.rank = static_cast<int>(i),
                       .program = &programs_[i],
                       .lanes = {{kData, lanes_[0]}, {kPipeline, lanes_[1]}}});
    }
    return replay(ranks, costs, traces);
  }

 private:
  std::vector<ProgramLog> logs_;
  std::vector<DryLane> lanes_;
  std::vector<StepProgram> programs_;
};

TEST(Replay, ComputesInOrder) {
  World world(1);
  world.compute(0, 1.0);
  world.compute(0, 2.5);
  const Replay replayed = world.run();
  EXPECT_DOUBLE_EQ(replayed.seconds, 3.5);
  EXPECT_DOUBLE_EQ(replayed.ranks[0].compute, 3.5);
}

TEST(Replay, AnOperationHidesBehindComputation) {
  World world(2);
  for (int rank = 0; rank < 2; ++rank) {
    world.compute(rank, 1.0);
    const auto posted = world.reduce(rank, 3);
    world.compute(rank, 2.0);
    world.wait(rank, posted);
    world.compute(rank, 1.0);
  }
  const Replay replayed = world.run();
  EXPECT_DOUBLE_EQ(replayed.seconds, 5.0);  // 1, then 3 beside 2, then 1
  EXPECT_DOUBLE_EQ(replayed.ranks[0].all_exposed(), 1.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[0].exposed.at("data"), 1.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[0].all_late(), 0.0);
}

TEST(Replay, WhoIsEarlyWaitsForTheOthers) {
  World world(2);
  for (int rank = 0; rank < 2; ++rank) {
    world.compute(rank, rank == 0 ? 1.0 : 4.0);
    world.wait(rank, world.reduce(rank, 2));
  }
  const Replay replayed = world.run();
  EXPECT_DOUBLE_EQ(replayed.seconds, 6.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[0].late.at("data"), 3.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[0].exposed.at("data"), 2.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[1].all_late(), 0.0);
}

TEST(Replay, LatencyComesBeforeTheFlow) {
  World world(2);
  world.latency = 0.25;
  for (int rank = 0; rank < 2; ++rank) world.wait(rank, world.reduce(rank, 2));
  EXPECT_DOUBLE_EQ(world.run().seconds, 2.25);
}

TEST(Replay, OperationsOfALaneRunOneAfterAnother) {
  World world(2);
  for (int rank = 0; rank < 2; ++rank) {
    world.reduce(rank, 2);
    world.wait(rank, world.reduce(rank, 3));
  }
  EXPECT_DOUBLE_EQ(world.run().seconds, 5.0);
}

// Messages of one rank to two others leave by the same way, and what comes in meanwhile by another.
TEST(Replay, FlowsShareAWay) {
  World world(3);
  const auto to_1 = world.send(0, 1, 2), to_2 = world.send(0, 2, 2);
  world.wait(0, to_1);
  world.wait(0, to_2);
  world.wait(1, world.receive(1, 0, 2));
  world.wait(2, world.receive(2, 0, 2));
  EXPECT_DOUBLE_EQ(world.run().seconds, 4.0);

  for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}}) world.send(from, to, 2);
  world.wait(0, world.receive(0, 1, 2));
  world.wait(1, world.receive(1, 0, 2));
  EXPECT_DOUBLE_EQ(world.run().seconds, 2.0);
}

// A short one that joins a long one for a while: 1 alone, 2 shared (1 done of each), 1 alone.
TEST(Replay, AFlowThatEndsLeavesItsShare) {
  World world(3);
  const auto long_one = world.send(0, 1, 3);
  world.compute(0, 1.0);
  const auto short_one = world.send(0, 2, 1);
  world.wait(0, long_one);
  world.wait(0, short_one);
  world.wait(1, world.receive(1, 0, 3));
  world.wait(2, world.receive(2, 0, 1));
  const Replay replayed = world.run();
  EXPECT_DOUBLE_EQ(replayed.seconds, 4.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[2].end, 3.0);
}

TEST(Replay, AnEagerMessageLeavesBeforeItIsAskedFor) {
  for (const bool eager : {false, true}) {
    World world(2);
    world.costs.eager = eager;
    world.send(0, 1, 3);
    world.compute(1, 4.0);
    world.wait(1, world.receive(1, 0, 3));
    EXPECT_DOUBLE_EQ(world.run().seconds, eager ? 4.0 : 7.0);
  }
}

// With NCCL the messages of an exchange are one operation of the communicator, and the next one
// waits for it. Otherwise each peer and direction is a lane.
TEST(Replay, ExchangesInOrderWaitForEachOther) {
  for (const bool in_order : {false, true}) {
    World world(3);
    world.costs.in_order = in_order;
    world.receive(0, 1, 1);  // which comes late
    world.wait(0, world.receive(0, 2, 1));
    world.compute(1, 5.0);
    world.send(1, 0, 1);
    world.send(2, 0, 1);
    EXPECT_DOUBLE_EQ(world.run().ranks[0].end, in_order ? 7.0 : 1.0);

    const auto first = world.receive(0, 1, 1);
    world.wait(0, world.receive(0, 2, 1, first));
    world.compute(1, 5.0);
    world.send(1, 0, 1);
    world.send(2, 0, 1);
    EXPECT_DOUBLE_EQ(world.run().ranks[0].end, 1.0);
  }
}

TEST(Replay, CommunicationInFlightSlowsComputation) {
  World world(2);
  world.costs.beside_communication = 0.5;
  for (int rank = 0; rank < 2; ++rank) {
    const auto posted = world.reduce(rank, 2);
    world.compute(rank, 3.0);  // 2 at half the speed, and what is left
    world.wait(rank, posted);
  }
  const Replay replayed = world.run();
  EXPECT_DOUBLE_EQ(replayed.seconds, 4.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[0].compute, 3.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[0].slowed, 1.0);
}

// Within a node, ranks that compute leave communication less of their cores.
TEST(Replay, ComputationSlowsCommunicationOfItsNode) {
  for (const bool leaves_node : {false, true}) {
    World world(2);
    world.leaves_node = leaves_node;
    world.costs.beside_communication = 0.5;
    world.costs.beside_computation = 0.25;
    for (int rank = 0; rank < 2; ++rank) {
      const auto posted = world.reduce(rank, 3);
      world.compute(rank, rank == 0 ? 4.0 : 2.0);
      world.wait(rank, posted);
    }
    const Replay replayed = world.run();
    // Within the node rank 0 computes for 8 seconds, in which 2 of the 3 are done. On a network 3
    // seconds are over when 1.5 of the 4 are computed.
    EXPECT_DOUBLE_EQ(replayed.seconds, leaves_node ? 5.5 : 9.0);
    EXPECT_DOUBLE_EQ(replayed.ranks[0].slowed, leaves_node ? 1.5 : 4.0);
    EXPECT_DOUBLE_EQ(replayed.ranks[0].compute, 4.0);
    EXPECT_DOUBLE_EQ(replayed.ranks[0].all_exposed(), leaves_node ? 0.0 : 1.0);
    EXPECT_DOUBLE_EQ(replayed.ranks[1].slowed, leaves_node ? 1.5 : 2.0);
  }
}

// A host that queues slower than its device computes.
TEST(Replay, LaunchesBoundShortOperations) {
  int device = 0;
  for (const double launch : {0.0, 0.5, 2.0}) {
    World world(1);
    world.costs.launch = launch;
    world.stream = &device;
    for (int i = 0; i < 10; ++i) world.compute(0, 1.0);
    world.log(0).wait_stream(&device);
    EXPECT_DOUBLE_EQ(world.run().seconds, launch <= 1.0 ? launch + 10.0 : 10 * launch + 1.0);
  }
}

TEST(Replay, StreamsWaitForMarksOfOthers) {
  int compute = 0, copies = 0, event = 0;
  World world(1);
  world.stream = &copies;
  world.compute(0, 5.0);
  world.log(0).mark(&copies, &event);
  world.stream = &compute;
  world.compute(0, 1.0);
  world.log(0).wait_mark(&compute, &event);
  world.compute(0, 6.0);
  const Replay replayed = world.run();
  EXPECT_DOUBLE_EQ(replayed.seconds, 11.0);
  EXPECT_DOUBLE_EQ(replayed.ranks[0].compute, 7.0);  // the stream with most to do
}

// A second phase, which its host begins when the first is done, at the next look, or at the end.
TEST(Replay, BlocksAreDoneWhenTheyNeedNotWait) {
  for (const bool looks : {false, true}) {
    World world(2);
    for (int rank = 0; rank < 2; ++rank) {
      ProgramLog& log = world.log(rank);
      const auto first = world.reduce(rank, 2);
      log.begin_later();
      world.wait(rank, first);
      const auto second = world.reduce(rank, 4);
      log.end_later();
      world.compute(rank, 3.0);
      if (looks) log.look();
      world.compute(rank, 3.0);
      log.settle(0);
      world.wait(rank, second);
    }
    EXPECT_DOUBLE_EQ(world.run().seconds, looks ? 7.0 : 10.0);
  }
}

TEST(Replay, WhoWaitsForEverIsNamed) {
  World world(2);
  world.wait(0, world.reduce(0, 1));
  world.compute(1, 1.0);
  // The other member never calls it: it is not a member's program that lacks it, but a fault here.
  const std::string message = message_of<InternalError>([&] { world.run(); });
  EXPECT_NE(message.find("all_reduce of data (1 of 2 replayed ranks are there)"), std::string::npos)
      << message;
}

TEST(Replay, TracesTellWhatARecorderWould) {
  World world(2);
  for (int rank = 0; rank < 2; ++rank) {
    world.log(rank).phase("forward", 0);
    world.compute(rank, 1.0);
    const auto posted = world.reduce(rank, 3);
    world.compute(rank, 1.0);
    world.wait(rank, posted);
    world.log(rank).phase("backward", 0);
    world.compute(rank, 2.0);
  }
  std::vector<Trace> traces;
  world.run(&traces);
  ASSERT_EQ(traces.size(), 2U);
  const Trace& trace = traces[0];
  ASSERT_EQ(trace.operations.size(), 1U);
  EXPECT_EQ(trace.operations[0].name, "all_reduce");
  EXPECT_EQ(trace.operations[0].begin_ns, 1'000'000'000);
  EXPECT_EQ(trace.operations[0].end_ns, 4'000'000'000);
  std::vector<std::string> told;
  for (const Activity& activity : trace.activities) {
    told.push_back(fmt::format("{} {} {}", activity.name, activity.begin_ns / 1'000'000'000,
                               activity.end_ns / 1'000'000'000));
  }
  std::ranges::sort(told);
  EXPECT_EQ(told,
            (std::vector<std::string>{"all_reduce of data 2 4", "backward 4 6", "forward 0 2"}));
}

TEST(StepProgram, IsPrintedAndCompared) {
  const auto make = [](double flops) {
    ProgramLog log;
    log.phase("forward", 3);
    log.compute(nullptr, "matmul", DType::kBF16, {4, 3, 2, 1}, flops, 10.0);
    log.wait(nullptr, log.post(nullptr, "send", 2, 7, 64));
    return log.take();
  };
  EXPECT_EQ(make(24.0), make(24.0));
  EXPECT_NE(make(24.0), make(25.0));
  EXPECT_EQ(to_text(make(24.0)),
            "0 phase forward 3\n"
            "1 stream 0: matmul bf16 4x3x2x1, 24 FLOP, 10 bytes\n"
            "2 stream 0: post 0 send with rank 7 in lane 2: 64 bytes\n"
            "3 stream 0: wait for 0 send with rank 7 in lane 2: 64 bytes\n");
}

// What was posted in a step before is done.
TEST(StepProgram, LeavesOutWaitsForAStepBefore) {
  ProgramLog log;
  const auto posted = log.post(nullptr, "send", 0, 1, 8);
  int event = 0;
  log.mark(nullptr, &event);
  log.take();
  log.wait(nullptr, posted);
  log.wait_mark(nullptr, &event);
  EXPECT_TRUE(log.take().entries.empty());
}

// The seconds of a stage's forwards and backwards of one micro-batch: a second for each 1e6 FLOPs.
parallel::StepCosts costs_of_stage(const StepProgram& program) {
  parallel::StepCosts costs{0.0, 0.0, 0.0};
  const std::string* phase = nullptr;
  std::int32_t micro_batch = -1;
  for (const ProgramEntry& entry : program.entries) {
    if (entry.kind == ProgramEntry::Kind::kPhase) {
      phase = &program.name_of(entry);
      micro_batch = entry.number;
    }
    if (entry.kind != ProgramEntry::Kind::kCompute || micro_batch != 0) continue;
    if (*phase == "forward") costs.forward += entry.flops * 1e-6;
    if (*phase == "backward") costs.backward_input += entry.flops * 1e-6;
  }
  return costs;
}

// The checker of schedules keeps time too, of whole computations; so both must come to the same.
TEST(ReplayOfSchedules, TakesAsLongAsTheCheckerSays) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const int stages : {1, 2, 4}) {
      for (const int micro_batches : {4, 9}) {
        models::GptConfig model = small_gpt();
        model.layers = 6;
        plan::DryRunInput input = input_of(model, {1, stages, 1}, DType::kF32);
        input.step.schedule = schedule;
        set_micro_batches(input, micro_batches);
        const auto recorded = plan::record_stages(input, micro_batches);
        std::vector<ReplayedRank> ranks;
        parallel::ScheduleCosts expected;
        for (const plan::DryRunResult& result : recorded) {
          ranks.push_back(
              {.rank = result.place, .program = &result.program, .lanes = result.lanes});
          expected.parts.push_back(costs_of_stage(result.program));
        }
        ReplayCosts costs;
        costs.compute = [](const ProgramEntry& entry, const std::string&) {
          return entry.flops * 1e-6;
        };
        costs.communicate = [](const std::string&, const DryLane&, int, int, std::size_t) {
          return CommunicationCost();
        };
        const auto made = parallel::make_pipeline_schedule(
            schedule, parallel::schedule_layout(schedule, stages, {}), micro_batches);
        const double makespan = parallel::check_schedule(made, expected).makespan;
        EXPECT_GT(makespan, 0.0);
        EXPECT_NEAR(replay(ranks, costs).seconds, makespan, 1e-9 * makespan)
            << schedule << ", " << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

// All schedules, data, tensor and shards: a replay ends, and its traffic is the dry run's.
TEST(ReplayOfSchedules, EveryScheduleEnds) {
  for (const std::string& schedule : parallel::schedule_names()) {
    for (const bool on_gpus : {false, true}) {
      models::GptConfig model = small_gpt();
      model.layers = 6;
      GridShape grid(1, 2, 2);
      grid[Axis::kShard] = 2;
      plan::DryRunInput input = input_of(model, grid, DType::kBF16);
      const auto layout = parallel::schedule_layout(schedule, 2, {});
      input.step.schedule = schedule;
      input.step.stage.chunks = layout.chunks;
      input.step.stage.order = layout.order;
      input.step.stage.whole_weights = false;
      set_micro_batches(input, 16);
      if (on_gpus)
        input.device = {.threads = 1, .gpu_memory = std::int64_t{80} << 30, .nccl = true};
      const auto recorded = plan::record_stages(input, 8);
      std::vector<ReplayedRank> ranks;
      for (const plan::DryRunResult& result : recorded) {
        ranks.push_back({.rank = result.place, .program = &result.program, .lanes = result.lanes});
        std::size_t sent = 0, counted = 0;
        for (const auto& posted : result.program.communications) sent += posted.bytes;
        for (const DryTraffic& one : result.traffic) counted += one.bytes;
        EXPECT_EQ(sent, counted);
      }
      ReplayCosts costs;
      costs.in_order = on_gpus;
      costs.launch = on_gpus ? 1e-6 : 0.0;
      costs.compute = [](const ProgramEntry& entry, const std::string&) {
        return entry.flops * 1e-9 + entry.bytes * 1e-9;
      };
      costs.communicate = [](const std::string&, const DryLane&, int, int, std::size_t bytes) {
        return CommunicationCost{.latency = 1e-6, .flow = static_cast<double>(bytes) * 1e-9};
      };
      const Replay replayed = replay(ranks, costs);
      for (const plan::RankTimes& times : replayed.ranks) {
        EXPECT_GT(times.compute, 0.0) << schedule;
        EXPECT_LE(times.compute + times.all_exposed() + times.all_late(), replayed.seconds * 1.0001)
            << schedule;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::testing
