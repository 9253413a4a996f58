// Blocking code of many ranks in a simulated world: what start-up, checkpoints and training do
// there, and what they cost the rank that pays most.
#include "trireme/topology/simulated_ranks.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/device_choice.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/comm/process_grid.h"

#include "io/checkpoints/checkpoint_plan.h"
#include "io/checkpoints/shared_read.h"
#include "io/files/posix_file.h"
#include "support/checkpoint_model.h"
#include "support/comm_values.h"
#include "support/equality.h"
#include "support/message_of.h"
#include "support/rank_heap.h"
#include "support/simulated_network.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::message_of;
using testing::one_switch;

SimulatedRanksOptions options_of(int ranks_of_node = 1) {
  SimulatedRanksOptions options;
  options.world.costs = {.latency = 2e-6, .message = 2e-7};
  options.ranks_of_node = ranks_of_node;
  return options;
}

template <class Body>
SimulatedRanksResult run(int ranks, const Body& body, const SimulatedRanksOptions& options) {
  return run_simulated_ranks(one_switch(ranks), ranks, options, body);
}
template <class Body>
SimulatedRanksResult run(int ranks, const Body& body) {
  return run(ranks, body, options_of());
}

TEST(SimulatedRanks, KnowTheirPlaces) {
  std::vector<std::string> places(7);
  run(
      7,
      [&](SimulatedRank& rank) {
        places[static_cast<std::size_t>(rank.rank())] =
            fmt::format("{} {} {}/{} {}/{}", rank.host(), rank.node(), rank.local_rank(),
                        rank.local_size(), rank.world().rank(), rank.world().size());
      },
      options_of(3));
  EXPECT_EQ(places[0], "n0 0 0/3 0/7");
  EXPECT_EQ(places[5], "n1 1 2/3 5/7");
  EXPECT_EQ(places[6], "n2 2 0/1 6/7");
}

// Two communicators at once: the small sum of a pair does not wait for the large one of all ranks,
// which was called first; and two operations of one communicator end in the order of the calls.
TEST(SimulatedRanks, LanesAreIndependentAndKeepTheirOrder) {
  run(4, [](SimulatedRank& rank) {
    const int first = rank.rank() / 2 * 2;
    const auto pair = rank.group("pair", {first, first + 1});
    std::vector<float> large(1 << 20, 1.0f), next(4, 1.0f), small(4, 1.0f);
    const Work of_all = rank.world().all_reduce(Stream(), testing::wrap(large), ReduceOp::kSum);
    const Work after = rank.world().all_reduce(Stream(), testing::wrap(next), ReduceOp::kSum);
    const Work of_pair = pair->all_reduce(Stream(), testing::wrap(small), ReduceOp::kSum);
    of_pair.wait_host();
    EXPECT_EQ(small[3], 2.0f);
    EXPECT_FALSE(of_all.done());
    after.wait_host();
    EXPECT_TRUE(of_all.done());
    EXPECT_EQ(large[1 << 19], 4.0f);
    EXPECT_EQ(next[0], 4.0f);
  });
}

TEST(SimulatedRanks, TimePassesWhereRanksComputeAndWait) {
  std::vector<double> exposed(2);
  const auto result = run(2, [&](SimulatedRank& rank) {
    if (rank.rank() == 0) rank.compute(0.5);
    EXPECT_EQ(rank.world().all_reduce_host(rank.rank(), ReduceOp::kMax), 1);
    EXPECT_GE(rank.now(), 0.5);
    exposed[static_cast<std::size_t>(rank.rank())] = rank.recorder().exposed_seconds();
  });
  EXPECT_NEAR(result.seconds, 0.5, 1e-3);
  EXPECT_LT(exposed[0], 1e-3);
  EXPECT_NEAR(exposed[1], 0.5, 1e-3);
}

TEST(SimulatedRanks, ALoopThatOnlyLooksEnds) {
  run(2, [](SimulatedRank& rank) {
    std::vector<float> data(1000, 1.0f);
    const Work work = rank.world().all_reduce(Stream(), testing::wrap(data), ReduceOp::kSum);
    while (!work.done()) {
    }
    EXPECT_EQ(data[999], 2.0f);
  });
}

TEST(SimulatedRanks, AFaultOfARankIsNamed) {
  EXPECT_EQ(message_of<DataError>([] {
              run(4, [](SimulatedRank& rank) {
                if (rank.rank() == 2) throw DataError("no such shard");
                rank.world().barrier().wait_host();
              });
            }),
            "rank 2: no such shard");
  EXPECT_EQ(message_of<DataError>([] {
              run(4, [](SimulatedRank& rank) {
                rank.world().read_once([]() -> std::string { throw DataError("no such shard"); });
              });
            }),
            "no such shard");
}

// Nothing is written any more to the memory of operations in flight, which is gone.
TEST(SimulatedRanks, AFaultWithOperationsInFlightStopsTheWorld) {
  EXPECT_EQ(message_of<DataError>([] {
              run(4, [](SimulatedRank& rank) {
                std::vector<float> data(1 << 16, 1.0f);
                const Work work =
                    rank.world().all_reduce(Stream(), testing::wrap(data), ReduceOp::kSum);
                rank.compute(1e-6);
                if (rank.rank() == 2) throw DataError("no such shard");
                work.wait_host();
                ADD_FAILURE() << "it cannot be done";
              });
            }),
            "rank 2: no such shard");
}

// The ranks that wait are unwound: what they hold is released, also where an exception is caught
// and more is called.
TEST(SimulatedRanks, AHangIsNamedAndTheRanksAreUnwound) {
  int released = 0;
  struct Held {
    int& count;
    ~Held() { ++count; }
  };
  const std::string line = message_of<InternalError>([&] {
    run(3, [&](SimulatedRank& rank) {
      const Held held{released};
      const auto data = rank.group("data", {0, 1, 2});
      if (rank.rank() == 2) return;
      try {
        data->all_reduce_host(1.0f, ReduceOp::kSum);
      } catch (...) {
        data->barrier().wait_host();
      }
    });
  });
  EXPECT_NE(line.find("nothing moves any more: rank 0 waits in all_reduce 2 of data; rank 1 waits "
                      "in all_reduce 2 of data; rank 2 has ended (messages: "),
            std::string::npos)
      << line;
  EXPECT_EQ(released, 3);
}

TEST(SimulatedRanks, ExceptionsInFlightStayWithTheirRank) {
  run(2, [](SimulatedRank& rank) {
    struct Waits {
      SimulatedRank& rank;
      ~Waits() {
        EXPECT_EQ(std::uncaught_exceptions(), rank.rank() == 0 ? 1 : 0);
        rank.world().barrier().wait_host();
        rank.compute(1e-3 * rank.rank());
        EXPECT_EQ(std::uncaught_exceptions(), rank.rank() == 0 ? 1 : 0);
      }
    };
    try {
      const Waits waits{rank};
      if (rank.rank() == 0) throw DataError("one rank alone");
    } catch (const DataError&) {
      rank.compute(1e-2);
    }
  });
}

TEST(SimulatedRanks, HaveNoMpi) {
  EXPECT_EQ(message_of<InternalError>(
                [] { run(2, [](SimulatedRank& rank) { rank.world().native_mpi(); }); }),
            "communicator world is simulated: it has no MPI_Comm");
}

// Prints what the part of a program costs.
void report(const std::string& what, int ranks, const SimulatedRanksResult& result,
            std::chrono::steady_clock::time_point began) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print(
      "{} on {} ranks: {:.0f} us, {} messages; worst rank: {} messages, {} bytes sent, {} KiB of "
      "heap, {} KiB of workspace, {} KiB of stack; simulated in {:.2f} s\n",
      what, ranks, 1e6 * result.seconds, result.messages, result.worst_messages, result.worst_bytes,
      testing::worst_rank_heap() / 1024, result.worst_workspace / 1024, result.worst_stack / 1024,
      took.count());
}

TEST(SimulatedProgram, StartUpCostsEachRankAFewMessages) {
  for (const int ranks : {64, 512}) {
    const auto began = std::chrono::steady_clock::now();
    testing::worst_rank_heap(/*begin_anew=*/true);
    int reads = 0;
    const auto body = [&](SimulatedRank& rank) {
      Communicator& world = rank.world();
      EXPECT_TRUE(world.agree(true));
      EXPECT_FALSE(world.agree(rank.rank() != 77 % rank.size()));
      const std::string config = world.read_once([&] {
        ++reads;
        return std::string(10'000, 'c');
      });
      EXPECT_EQ(config.size(), 10'000u);
      // Which GPU each rank of a node takes.
      const std::string gpu = fmt::format("GPU-{}-{}", rank.node(), rank.local_rank() % 4);
      std::vector<std::vector<std::string>> visible;
      for (auto& lines : gather_lines(world, {std::to_string(rank.node()), gpu})) {
        if (lines.front() == std::to_string(rank.node())) visible.push_back({lines.at(1)});
      }
      ASSERT_EQ(static_cast<int>(visible.size()), rank.local_size());
      EXPECT_EQ(choose_devices(visible, /*may_share=*/true, {}).size(), visible.size());
      const ProcessGrid grid(rank, GridShape{ranks / 16, 4, 4});
      EXPECT_EQ(grid.comm(kDataAxes).size(), ranks / 16);
      EXPECT_EQ(grid.comm(Axis::kTensor).world_rank(0), rank.rank() / 4 * 4);
      world.barrier().wait_host();
    };
    const auto result = run(ranks, body, options_of(8));
    report("start-up", ranks, result, began);
    EXPECT_EQ(reads, 1);
    // A small multiple of log2(ranks): 6 and 9.
    EXPECT_LE(result.worst_messages, ranks == 64 ? 100u : 150u);
    EXPECT_LE(testing::worst_rank_heap(), 1 << 20);
  }
}

// Each rank owns a part of each tensor; the plan is drawn on rank 0.
TEST(SimulatedProgram, TheRanksPlanACheckpoint) {
  const int ranks = 512;
  const auto began = std::chrono::steady_clock::now();
  testing::worst_rank_heap(/*begin_anew=*/true);
  const auto tensors = testing::small_model();
  const auto result = run(ranks, [&](SimulatedRank& rank) {
    const auto owned = testing::deal(tensors, testing::Split::kFlat, rank.rank(), rank.size(), 1,
                                     /*filled=*/false);
    const CheckpointPlan plan = agree_on_plan(rank.world(), owned);
    EXPECT_EQ(plan.tensors.size(), rank.rank() == 0 ? tensors.size() : 0u);
  });
  report("planning a checkpoint", ranks, result, began);
  EXPECT_LE(result.worst_messages, 60u);
}

TEST(SimulatedProgram, TheRanksReadACheckpoint) {
  const auto tensors = testing::small_model();
  const testing::TemporaryFolder folder;
  PosixFile file(folder.path() / "tensors", O_RDWR | O_CREAT);
  CheckpointContents contents;
  std::int64_t end = 64;
  for (const TensorSlice& slice : testing::deal(tensors, testing::Split::kWhole, 0, 1, 1, true)) {
    CheckpointTensor tensor;
    tensor.name = slice.name;
    tensor.shape = slice.global;
    tensor.dtype = slice.local.dtype();
    tensor.offset = end;
    file.write(end, slice.local.raw(), static_cast<std::size_t>(tensor.bytes()));
    end += tensor.bytes();
    contents.tensors.push_back(tensor);
  }
  contents.file_bytes = end;
  std::ranges::sort(contents.tensors, {}, &CheckpointTensor::name);
  const int ranks = 512, replicas = 8, share = ranks / replicas;
  const auto began = std::chrono::steady_clock::now();
  testing::worst_rank_heap(/*begin_anew=*/true);
  const auto result = run(ranks, [&](SimulatedRank& rank) {
    std::vector<int> replica, copies;
    for (int i = 0; i < share; ++i) replica.push_back(rank.rank() / share * share + i);
    for (int i = 0; i < replicas; ++i) copies.push_back(rank.rank() % share + i * share);
    const auto of_replica = rank.group("replica", replica);
    const auto of_copies = rank.group("copies", copies);
    auto wanted = testing::deal(tensors, testing::Split::kRows, rank.rank() % share, share, 1,
                                /*filled=*/false);
    read_shared({rank.world(), *of_replica, of_copies.get()}, file, contents, wanted,
                {.shortest_run = 64, .longest_run = 1024, .round = 8192});
    EXPECT_EQ(testing::wrong_bytes(wanted, 1), 0) << rank.rank();
  });
  report("reading a checkpoint", ranks, result, began);
}

testing::EqualityCase training_case(const GridShape& grid, const std::string& schedule) {
  testing::EqualityCase test;
  test.grid = grid;
  test.schedule = schedule;
  test.model = models::gpt_preset("test-gpt");
  test.model.layers = grid[Axis::kPipeline];
  test.model.heads = test.model.kv_heads = 8;
  test.micro_batches = grid.extent(kDataAxes) + 1;
  return test;
}

// The real blocks, executor and reducer. The gradients are those of one rank.
TEST(SimulatedProgram, AStepOnAGridHasTheGradientsOfOneRank) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    testing::EqualityCase test = training_case({2, 2, 2}, schedule);
    testing::LocalParts whole;
    const auto gradients = [&](SimulatedRank& rank, const GridShape& shape) {
      ops::Context ctx = ops::make_cpu_context(1);
      const ProcessGrid grid(rank, shape);
      testing::EqualityCase here = test;
      here.grid = shape;
      return testing::GradientObserver(ctx, grid, here).gradients();
    };
    run(1, [&](SimulatedRank& rank) { whole = gradients(rank, {1, 1, 1}); });
    ASSERT_FALSE(whole.empty());
    run(8, [&](SimulatedRank& rank) {
      const testing::LocalParts here = gradients(rank, {2, 2, 2});
      for (const auto& deviation : testing::compare(whole, here, rank.world())) {
        const bool zero = testing::zero_in_exact_arithmetic(deviation.name, test.model);
        EXPECT_LT(zero ? deviation.absolute : deviation.relative, zero ? 1e-7 : 1e-5)
            << deviation.name;
        EXPECT_TRUE(deviation.covered) << deviation.name;
      }
    });
  }
}

TEST(SimulatedProgram, AStepOf512Ranks) {
  const GridShape shape{8, 8, 8};
  const testing::EqualityCase test = training_case(shape, "1f1b");
  const auto began = std::chrono::steady_clock::now();
  testing::worst_rank_heap(/*begin_anew=*/true);
  std::uint64_t worst_tensors = 0;
  double loss = 0.0;
  const auto result = run(
      shape.ranks(),
      [&](SimulatedRank& rank) {
        ops::Context ctx = ops::make_cpu_context(1);
        const ProcessGrid grid(rank, shape);
        parallel::StepOptions options;
        options.clip = 1.0f;
        parallel::TrainerStep step(ctx, grid, models::gpt_plan(test.model), options);
        const parallel::WorkSplit work = test.work();
        const int replica = grid.index(kDataAxes);
        const auto done =
            step.train(testing::make_batches(ctx, test.batch, work.micro(replica, 0).number,
                                             work.count(replica), true),
                       1, 1e-3f, 1);
        EXPECT_TRUE(done.finite);
        if (loss == 0.0) loss = done.loss;
        EXPECT_EQ(done.loss, loss);
        worst_tensors = std::max(worst_tensors, std::uint64_t{ctx.allocator->stats().total_peak});
      },
      options_of(8));
  report("a step", shape.ranks(), result, began);
  fmt::print("  and {} KiB of tensors\n", worst_tensors / 1024);
  EXPECT_GT(result.worst_messages, 0u);
}

}  // namespace
}  // namespace trireme
