// What communicators of NCCL cost that are polled, and what blocking ones would: counts of calls
// and threads, on a GPU and a NCCL that are scripted.
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/tensor/captured_work.h"

#include "comm/nccl/captured_operations.h"
#include "support/message_of.h"
#include "support/nccl_machine.h"

namespace trireme {
namespace {

using testing::FakeNccl;
using testing::Machine;
using testing::message_of;
using testing::runtime;

constexpr std::size_t kRepeats = 20;
constexpr std::size_t kMostPolls = 4;  // of one call of the scripted NCCL

FakeNccl::Cost operator-(const FakeNccl::Cost& a, const FakeNccl::Cost& b) {
  return {.calls = a.calls - b.calls,
          .polls = a.polls - b.polls,
          .watches = a.watches - b.watches,
          .threads = a.threads - b.threads,
          .freed_in_use = a.freed_in_use - b.freed_in_use};
}

// What `operation` costs the host, repeated. Prints it.
template <class Operation>
FakeNccl::Cost cost_of(Machine& machine, const std::string& what, const Operation& operation) {
  const FakeNccl::Cost before = machine.nccl().cost();
  for (std::size_t i = 0; i < kRepeats; ++i) operation();
  const FakeNccl::Cost cost = machine.nccl().cost() - before;
  if (runtime().rank() == 0) {
    fmt::print("{} {}, {}: calls {}, polls {}, threads of NCCL {}\n", kRepeats, what,
               machine.nccl().blocking ? "blocking" : "polled", cost.calls, cost.polls,
               cost.threads);
  }
  return cost;
}

TEST(NcclBlocking, SavesPollsAndThreadsOfWhatIsNotCaptured) {
  for (const bool blocking : {false, true}) {
    Machine machine(31);
    machine.nccl().blocking = blocking;
    const auto comm = machine.communicator();
    const int ranks = comm->size();
    const int next = (comm->rank() + 1) % ranks, before = (comm->rank() + ranks - 1) % ranks;
    const Stream& stream = machine.stream();
    const Tensor number = machine.on_device(std::vector<std::int64_t>{0});
    const Tensor data = machine.on_device(std::vector<float>(10, 1.0f));
    const Tensor received = machine.on_device(std::vector<float>(10, 0.0f));
    const auto sum = [&] { comm->all_reduce(stream, data, ReduceOp::kMax).wait_on(stream); };
    const auto exchange = [&] {
      using Direction = Transfer::Direction;
      comm->exchange(stream,
                     {{Direction::kSend, next, data}, {Direction::kReceive, before, received}})
          .wait_on(stream);
    };
    const auto expect = [&](const FakeNccl::Cost& cost, std::size_t calls) {
      EXPECT_EQ(cost.calls, calls * kRepeats);
      EXPECT_EQ(cost.threads, blocking ? 0 : kRepeats);
      EXPECT_GE(cost.polls, kRepeats);  // one sees an error that the call has not returned
      EXPECT_LE(cost.polls, (blocking ? 1 : kMostPolls) * kRepeats);
      EXPECT_EQ(cost.freed_in_use, 0u);
    };
    expect(cost_of(machine, "all-reduces", sum), 1);
    expect(cost_of(machine, "exchanges of two messages", exchange), 4);
    stream.synchronize();

    cuda::CapturedWork captured(machine.shared_cuda(), stream, machine.allocator());
    nccl::CapturedOperations communication(machine.session(), stream,
                                           number.address<std::int64_t>());
    communication.held_by(captured.give_up());
    captured.capture([&] {
      sum();
      exchange();
      communication.join();
    });
    std::int64_t replay = 0;
    const FakeNccl::Cost cost = cost_of(machine, "replays of both", [&] {
      machine.cuda().enqueue(
          stream, [to = number.address<std::int64_t>(), step = ++replay] { *to = step; });
      communication.replay(replay);
      captured.replay();
      stream.synchronize();
    });
    EXPECT_EQ(cost.calls + cost.polls + cost.threads, 0u);
    EXPECT_EQ(machine.read<float>({}, received), std::vector<float>(10, 1.0f));
    machine.drain();
  }
}

// The thread that has made the call ends it itself, and aborts a communicator that nobody uses.
TEST(NcclBlocking, APolledCallEndsItselfWhereAPeerIsMissing) {
  if (runtime().size() == 1) GTEST_SKIP() << "needs a peer that does not come";
  Machine machine(32);
  machine.nccl().connects = true;
  machine.session().set_timeout(0.2);
  const auto comm = machine.communicator();
  const Tensor data = machine.on_device(std::vector<float>(64, 1.0f));
  if (comm->rank() == 0) {
    const auto fault = message_of<LostRankError>(
        [&] { comm->all_reduce(machine.stream(), data, ReduceOp::kSum); });
    EXPECT_NE(fault.find("did not get through with all_reduce"), std::string::npos) << fault;
    EXPECT_EQ(machine.nccl().aborted(), 1u);
  }
  runtime().world().barrier().wait_host();
  machine.session().abort();
  EXPECT_EQ(machine.nccl().cost().freed_in_use, 0u);
}

// It takes a thread more in each process, and what that thread frees is in use.
TEST(NcclBlocking, ABlockingCallIsEndedByAnotherThreadAlone) {
  if (runtime().size() == 1) GTEST_SKIP() << "needs a peer that does not come";
  for (const bool at_the_start : {true, false}) {
    Machine machine(33);
    FakeNccl& nccl = machine.nccl();
    nccl.blocking = nccl.connects = true;
    const bool comes = runtime().rank() == 0;
    const Tensor data = machine.on_device(std::vector<float>(64, 1.0f));
    nccl::UniqueId id = {};
    if (comes) {
      EXPECT_EQ(nccl.make_unique_id(id), nccl::Result::kSuccess);
    }
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof id);
    runtime()
        .world()
        .broadcast(Stream(), Tensor::wrap(id.data(), {kBytes}, DType::kU8), 0)
        .wait_host();
    nccl::CommHandle comm = nullptr;
    const auto start = [&] {
      return nccl.init_rank(comm, "blocking", runtime().size(), id, runtime().rank(), {});
    };
    const auto sum = [&] {
      return nccl.all_reduce(data.raw(), 64, DType::kF32, ReduceOp::kSum, comm,
                             machine.stream().native());
    };
    if (!at_the_start) {
      EXPECT_EQ(start(), nccl::Result::kSuccess);
    }
    std::size_t watchers = 0;
    if (comes) {
      std::thread watcher([&] {
        while (nccl.inside() == 0) usleep(100);
        ++watchers;
        nccl.abort(comm);
      });
      EXPECT_NE(at_the_start ? start() : sum(), nccl::Result::kSuccess);
      watcher.join();
      EXPECT_EQ(watchers, 1u);
      EXPECT_EQ(nccl.cost().freed_in_use, 1u);
    }
    runtime().world().barrier().wait_host();
    if (!comes && !at_the_start) nccl.abort(comm);
  }
}

}  // namespace
}  // namespace trireme
