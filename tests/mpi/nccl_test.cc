// Communicators that give tensors of a GPU to NCCL, on a GPU and a NCCL that are scripted: the
// ranks are those of MPI. What is expected of the numbers is what MPI gives for tensors of the
// host.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/tensor/captured_work.h"

#include "comm/nccl/captured_operations.h"
#include "comm/nccl/guarded_communicator.h"
#include "support/message_of.h"
#include "support/nccl_machine.h"

namespace trireme {
namespace {

using testing::all_ranks;
using testing::FakeNccl;
using testing::kLane;
using testing::Machine;
using testing::message_of;
using testing::numbers;
using testing::runtime;
using testing::same_bits;
using testing::wrap;

template <class T>
class NcclCollectives : public ::testing::Test {};
using Types =
    ::testing::Types<float, BFloat16, Half, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(NcclCollectives, Types);

TYPED_TEST(NcclCollectives, EqualThoseOfMpi) {
  using T = TypeParam;
  Machine machine(1);
  const auto comm = machine.communicator();
  const auto ranks = static_cast<std::size_t>(comm->size());
  const Stream& stream = machine.stream();
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
    const auto part = numbers<T>(comm->rank(), n);
    const auto whole = numbers<T>(comm->rank(), n * ranks);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      auto expected = part;
      comm->all_reduce(Stream(), wrap(expected), op).wait_host();
      const Tensor data = machine.on_device(part);
      EXPECT_TRUE(same_bits(machine.read<T>(comm->all_reduce(stream, data, op), data), expected));

      std::vector<T> scattered(n);
      auto input = whole;
      comm->reduce_scatter(Stream(), wrap(input), wrap(scattered), op).wait_host();
      const Tensor from = machine.on_device(whole);
      const Tensor to = machine.on_device(part);
      EXPECT_TRUE(
          same_bits(machine.read<T>(comm->reduce_scatter(stream, from, to, op), to), scattered));
    }
    std::vector<T> gathered(n * ranks);
    auto own = part;
    comm->all_gather(Stream(), wrap(own), wrap(gathered)).wait_host();
    const Tensor input = machine.on_device(part);
    const Tensor output = machine.on_device(whole);
    EXPECT_TRUE(
        same_bits(machine.read<T>(comm->all_gather(stream, input, output), output), gathered));

    std::vector<T> exchanged(n * ranks);
    auto given = whole;
    comm->all_to_all(Stream(), wrap(given), wrap(exchanged)).wait_host();
    const Tensor sent = machine.on_device(whole);
    EXPECT_TRUE(
        same_bits(machine.read<T>(comm->all_to_all(stream, sent, output), output), exchanged));

    for (int root = 0; root < comm->size(); ++root) {
      const Tensor data = machine.on_device(part);
      EXPECT_TRUE(same_bits(machine.read<T>(comm->broadcast(stream, data, root), data),
                            numbers<T>(root, n)));
    }
  }
}

// A ring in both directions: in one group, or the ranks would wait for each other in a circle.
TEST(Nccl, AnExchangeIsOneOperation) {
  Machine machine(2);
  const auto comm = machine.communicator();
  const int next = (comm->rank() + 1) % comm->size();
  const int before = (comm->rank() + comm->size() - 1) % comm->size();
  for (std::int32_t step = 0; step < 20; ++step) {
    const auto value = [&](int rank, int way) {
      return std::vector<std::int32_t>(100, step * 1000 + rank * 10 + way);
    };
    const Tensor up = machine.on_device(value(comm->rank(), 1));
    const Tensor down = machine.on_device(value(comm->rank(), 2));
    const Tensor from_below = machine.on_device(value(0, 0));
    const Tensor from_above = machine.on_device(value(0, 0));
    using Direction = Transfer::Direction;
    const Work work = comm->exchange(machine.stream(), {{Direction::kSend, next, up},
                                                        {Direction::kSend, before, down},
                                                        {Direction::kReceive, before, from_below},
                                                        {Direction::kReceive, next, from_above}});
    EXPECT_EQ(machine.read<std::int32_t>(work, from_below), value(before, 1));
    EXPECT_EQ(machine.read<std::int32_t>(work, from_above), value(next, 2));
  }
}

TEST(Nccl, GathersTogetherAreOneOperation) {
  Machine machine(3);
  const auto comm = machine.communicator();
  const auto ranks = static_cast<std::size_t>(comm->size());
  for (int step = 0; step < 10; ++step) {
    const auto all = [&](int which, std::size_t each) {
      std::vector<std::int32_t> values;
      for (std::size_t i = 0; i < each * ranks; ++i) {
        values.push_back(step * 1000 + which * 100 + static_cast<std::int32_t>(i));
      }
      return values;
    };
    const auto part = [&](int which, std::size_t each) {
      const auto values = all(which, each);
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(each) * comm->rank();
      return std::vector<std::int32_t>(first, first + static_cast<std::ptrdiff_t>(each));
    };
    const Tensor empty = machine.on_device(std::vector<std::int32_t>());
    std::vector<Gather> gathers = {{empty, empty}};
    for (const std::size_t each : {3, 40}) {
      gathers.push_back({machine.on_device(part(gathers.size() == 1 ? 1 : 2, each)),
                         machine.on_device(std::vector<std::int32_t>(each * ranks))});
    }
    const std::size_t groups = machine.nccl().groups();
    const Work work = comm->all_gather_together(machine.stream(), gathers);
    EXPECT_EQ(machine.nccl().groups(), groups + 1);
    EXPECT_EQ(machine.read<std::int32_t>(work, gathers[1].output), all(1, 3));
    EXPECT_EQ(machine.read<std::int32_t>(work, gathers[2].output), all(2, 40));
  }
  EXPECT_TRUE(comm->all_gather_together(machine.stream(), {}).done());
  // Those of the host go by MPI.
  std::vector<std::int32_t> mine = {comm->rank()}, all(ranks);
  comm->all_gather_together(Stream(),
                            {{Tensor::wrap(std::span(mine)), Tensor::wrap(std::span(all))}})
      .wait_host();
  for (std::size_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(all[rank], static_cast<int>(rank));
}

// The communicator keeps what it uses; a block that comes back early would hold another's numbers.
TEST(Nccl, TensorsMayBeLetGoOfAtOnce) {
  Machine machine(3);
  const auto comm = machine.communicator();
  for (int step = 0; step < 50; ++step) {
    Tensor input = machine.on_device(std::vector<float>(100, 1.0f));
    const auto all = static_cast<std::size_t>(100 * comm->size());
    const Tensor output = machine.on_device(std::vector<float>(all, 0.0f));
    const Work work = comm->all_gather(machine.stream(), std::move(input), output);
    const Tensor next = machine.on_device(std::vector<float>(100, 7.0f));
    EXPECT_EQ(machine.read<float>(work, output), std::vector<float>(all, 1.0f));
  }
}

TEST(Nccl, TensorsMayOutliveTheCommunicator) {
  Machine machine(15);
  Tensor data = machine.on_device(std::vector<float>(100, 1.0f));
  { machine.communicator()->all_reduce(machine.stream(), data, ReduceOp::kSum).wait_host(); }
  data = {};
  const Tensor other = machine.on_device(std::vector<float>(100, 2.0f));
  EXPECT_EQ(machine.read<float>({}, other), std::vector<float>(100, 2.0f));
}

TEST(Nccl, TheHostsTensorsAndVerdictsGoByMpi) {
  Machine machine(4);
  const auto comm = machine.communicator();
  const std::size_t before = machine.nccl().calls();
  EXPECT_TRUE(comm->agree(true));
  EXPECT_FALSE(comm->agree(comm->rank() != 0));
  EXPECT_EQ(comm->all_reduce_host(1, ReduceOp::kSum), comm->size());
  EXPECT_EQ(comm->broadcast_text(comm->rank() == 0 ? "word" : ""), "word");
  comm->barrier().wait_host();
  EXPECT_EQ(machine.nccl().calls(), before);
}

TEST(Nccl, EndsInGoodOrder) {
  Machine machine(6);
  {
    const auto first = machine.communicator("first");
    const auto second = machine.communicator("second");
    const Tensor data = machine.on_device(std::vector<float>(100, 1.0f));
    first->all_reduce(machine.stream(), data, ReduceOp::kSum);
    EXPECT_EQ(machine.nccl().alive(), 2u);
  }
  EXPECT_EQ(machine.nccl().destroyed(), 2u);
  EXPECT_EQ(machine.nccl().aborted(), 0u);
}

// The other ranks may not come to the end of a communicator where this one has a fault.
TEST(Nccl, IsAbortedWhereAnExceptionIsInFlight) {
  Machine machine(7);
  EXPECT_THROW(
      {
        const auto comm = machine.communicator();
        throw DataError("something else");
      },
      DataError);
  EXPECT_EQ(machine.nccl().destroyed(), 0u);
  EXPECT_EQ(machine.nccl().aborted(), 1u);
}

// An operation has begun when its turn has come on the device, not when the host has queued it.
TEST(Nccl, TheRecorderKnowsWhatHappensOnTheDevice) {
  Machine machine(8);
  const auto comm = machine.communicator();
  std::atomic<bool> computed = false;
  machine.cuda().enqueue_until(machine.stream(), [&] { return [&] { return computed.load(); }; });
  const Tensor data = machine.on_device(std::vector<float>(100, 1.0f));
  const Work work = comm->all_reduce(machine.stream(), data, ReduceOp::kSum);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(work.done());
  const auto of_gpu = [](const std::vector<Operation>& all) {
    std::vector<Operation> found;
    std::ranges::copy_if(all, std::back_inserter(found),
                         [](const Operation& o) { return o.name == "all_reduce"; });
    return found;
  };
  EXPECT_TRUE(of_gpu(machine.recorder().under_way()).empty());
  computed = true;
  work.wait_host();
  const auto finished = of_gpu(machine.recorder().finished());
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].lane, kLane);
  EXPECT_EQ(finished[0].bytes, 400u);
  EXPECT_LE(finished[0].begin_ns, finished[0].end_ns);
}

// Everything that NCCL does in a little run. Returns what the fault was.
std::string little_run(Machine& machine) {
  return message_of<Error>([&] {
    const auto first = machine.communicator("first");
    const auto second = machine.communicator("second");
    const Tensor data = machine.on_device(std::vector<float>(64, 1.0f));
    const Tensor part = machine.on_device(std::vector<float>(64 / first->size(), 1.0f));
    const Tensor other = machine.on_device(std::vector<float>(64, 1.0f));
    const Stream& stream = machine.stream();
    first->all_reduce(stream, data, ReduceOp::kSum);
    second->reduce_scatter(stream, data, part, ReduceOp::kSum);
    second->all_gather(stream, part, data);
    first->broadcast(stream, data, 0);
    first->all_to_all(stream, data, other).wait_host();
    const Tensor carried = machine.carried({first.get(), second.get()}, 64);
    second->all_reduce(stream, carried, ReduceOp::kSum).wait_host();
    const Tensor number = machine.on_device(std::vector<std::int64_t>{1});
    cuda::CapturedWork captured(machine.shared_cuda(), stream, machine.allocator());
    nccl::CapturedOperations communication(machine.session(), stream,
                                           number.address<std::int64_t>());
    communication.held_by(captured.give_up());
    captured.capture([&] {
      first->all_reduce(stream, carried, ReduceOp::kSum);
      second->broadcast(stream, data, 0);
      communication.join();
    });
    communication.replay(1);
    captured.replay();
    stream.synchronize();
  });
}

// The same call fails on all ranks, at once or as a state that is found later. Only rank 0 makes
// the two ids; the others learn of a fault there.
TEST(Nccl, AnErrorAtAnyCallIsOneFaultAndEndsEverything) {
  std::size_t calls = 0;
  {
    Machine machine(9);
    EXPECT_EQ(little_run(machine), "no error");
    calls = machine.nccl().calls() + (runtime().rank() == 0 ? 0 : 2);
  }
  std::size_t faults = 0, refusals = 0;
  for (const bool later : {false, true}) {
    for (std::size_t n = 1; n <= calls; ++n) {
      Machine machine(10 + n);
      std::size_t own = n;
      if (runtime().rank() != 0) own = n == 1 || n == 3 ? 0 : n - (n > 3 ? 2 : 1);
      machine.nccl().fail_call(own, FakeNccl::Result::kSystemError, later);
      std::string fault = little_run(machine);
      // It happened at the end of a communicator, which throws nothing itself.
      if (fault == "no error") fault = message_of<Error>([&] { machine.session().check(); });
      if (fault == "no error") {  // no state is behind the calls that only prepare something
        if (!later) ++refusals;
        EXPECT_EQ(machine.nccl().aborted(), 0u) << n;
        continue;
      }
      ++faults;
      EXPECT_NE(fault.find("scripted error 2"), std::string::npos) << n << later << fault;
      EXPECT_EQ(fault.find("NCCL could not "), 0u) << fault;
      // All that there were, once each; the scripted library writes a second time down.
      EXPECT_EQ(machine.nccl().alive(), 0u) << n;
      EXPECT_EQ(machine.nccl().destroyed(), n == calls ? 1u : 0u) << n;  // at the end of the second
    }
  }
  EXPECT_EQ(refusals, 3u);  // of memory, a window and a buffer: done without
  EXPECT_GE(faults, calls + 6);
}

// A host that waits for the device, where a peer does not come: found by the engine's thread, which
// ends the kernel; the host's next step tells.
TEST(Nccl, AnAsynchronousErrorFreesTheHostThatWaitsForTheDevice) {
  if (runtime().size() == 1) GTEST_SKIP() << "needs a peer that does not come";
  Machine machine(11);
  const auto comm = machine.communicator();
  if (comm->rank() == 0) {
    const Tensor data = machine.on_device(std::vector<float>(64, 1.0f));
    const Work work = comm->all_reduce(machine.stream(), data, ReduceOp::kSum);
    work.wait_on(machine.stream());
    std::thread later([&] {
      usleep(20'000);
      machine.nccl().set_state(FakeNccl::Result::kRemoteError);
    });
    machine.stream().synchronize();
    later.join();
    const auto fault = message_of<LostRankError>([&] { work.wait_host(); });
    EXPECT_NE(fault.find("scripted error 6"), std::string::npos) << fault;
    EXPECT_THROW(comm->all_reduce(machine.stream(), data, ReduceOp::kSum), LostRankError);
    // This throws before anything of it is under way.
    EXPECT_THROW(comm->barrier(), LostRankError);
    EXPECT_EQ(machine.nccl().aborted(), 1u);
  } else {
    machine.session().abort();
  }
}

TEST(Nccl, AnOperationIsOnOneDevice) {
  Machine machine(15);
  const auto comm = machine.communicator();
  const Tensor there = machine.on_device(std::vector<float>(8, 1.0f));
  std::vector<float> values(8 * static_cast<std::size_t>(comm->size()));
  EXPECT_THROW(comm->all_gather(machine.stream(), there, wrap(values)), InternalError);
  EXPECT_THROW(comm->all_reduce(Stream(), there, ReduceOp::kSum), InternalError);
}

TEST(Nccl, WhatIsForTheHostHasNoCommunicatorOfNccl) {
  Machine machine(16);
  nccl::GuardedCommunicator comm(machine.session(), runtime().group("host", all_ranks()));
  EXPECT_EQ(machine.nccl().alive(), 0u);
  const Tensor data = machine.on_device(std::vector<float>(8, 1.0f));
  if (comm.size() > 1) {
    const auto fault =
        message_of<InternalError>([&] { comm.all_reduce(machine.stream(), data, ReduceOp::kSum); });
    EXPECT_NE(fault.find("communicator host was given a tensor of a GPU"), std::string::npos)
        << fault;
  }
  EXPECT_EQ(comm.all_reduce_host(1, ReduceOp::kSum), comm.size());
  machine.session().fail(std::make_exception_ptr(NcclError("planted")));
  EXPECT_THROW(comm.barrier(), NcclError);  // a fault of NCCL is told here too
}

TEST(Nccl, APeerThatDoesNotComeToTheStartEndsByTheTimeout) {
  Machine machine(12);
  if (runtime().rank() == 0) return;
  machine.session().set_timeout(0.2);
  const auto connection = std::make_shared<nccl::Connection>(machine.session(), "lonely");
  machine.session().add(connection);
  nccl::UniqueId id = {};
  const int of_nobody[2] = {0, 30};
  std::memcpy(id.data(), of_nobody, sizeof of_nobody);
  const auto fault =
      message_of<LostRankError>([&] { connection->open(runtime().size(), id, runtime().rank()); });
  EXPECT_NE(fault.find("start of lonely"), std::string::npos) << fault;
  EXPECT_EQ(machine.nccl().aborted(), 1u);
}

// What the ranks find out before NCCL starts. The same words on all of them.
class NcclStart : public ::testing::Test {
 protected:
  template <class E>
  std::string refused() {
    const std::string fault =
        message_of<E>([&] { make_nccl_carrier(machine_.parts(), runtime().world(), hosts_); });
    const std::string first = runtime().world().broadcast_text(fault);
    EXPECT_EQ(fault, first);
    return fault;
  }
  bool last() const { return runtime().rank() == runtime().size() - 1; }
  std::string name_of_last() const {
    return "rank " + std::to_string(runtime().size() - 1) + " (node)";
  }

  Machine machine_{14};
  std::vector<std::string> hosts_ =
      std::vector<std::string>(static_cast<std::size_t>(runtime().size()), "node");
};

// bad input: NCCL that differs between ranks, is too old, or is not there | rank 2 (...) has NCCL
// 2.27.3, but rank 0 (...) has 2.28.9: all ranks need the same (...) | 71
TEST_F(NcclStart, IsRefusedWhereVersionsDiffer) {
  if (runtime().size() == 1) GTEST_SKIP() << "one version";
  if (last()) machine_.nccl().reported_version = 22703;
  const std::string fault = refused<NcclError>();
  for (const std::string& word : {name_of_last(), std::string("2.27.3"), std::string("2.28.9")}) {
    EXPECT_NE(fault.find(word), std::string::npos) << fault;
  }
}

// bad input: NCCL older than 2.26 | rank 2 (...): NCCL 2.25.1 (/.../libnccl.so.2) is too
// old, 2.26.0 or newer is needed: load a newer module of NCCL or set LD_LIBRARY_PATH;
// --comm.backend mpi does without | 71
TEST_F(NcclStart, IsRefusedWhereItIsTooOld) {
  if (last()) machine_.nccl().reported_version = 22501;
  EXPECT_EQ(refused<NcclError>(),
            name_of_last() +
                ": NCCL 2.25.1 (/fake/libnccl.so.2) is too old, 2.26.0 or newer is needed: load a "
                "newer module of NCCL or set LD_LIBRARY_PATH; --comm.backend mpi does without");
}

TEST_F(NcclStart, TakesTheOldestThatHasTheLaunchOrder) {
  machine_.nccl().reported_version = nccl::kOldestVersion;
  make_nccl_carrier(machine_.parts(), runtime().world(), hosts_);
  EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
}

// bad input: NCCL_LAUNCH_ORDER_IMPLICIT=0 in the environment, with NCCL | rank 2 (...) has
// NCCL_LAUNCH_ORDER_IMPLICIT=0 in its environment, but the order of communication on a GPU depends
// on its being 1: unset it | 2
TEST_F(NcclStart, IsRefusedWhereTheLaunchOrderIsOff) {
  if (last()) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  const std::string fault = refused<ConfigError>();
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  EXPECT_EQ(fault.find(name_of_last() + " has NCCL_LAUNCH_ORDER_IMPLICIT=0"), 0u) << fault;
}

TEST_F(NcclStart, IsRefusedWhereOneHasNone) {
  if (last()) machine_.nccl().found = false;
  EXPECT_EQ(refused<NcclError>(), name_of_last() + ": no NCCL is here");
}

// bad input: several ranks on one GPU with NCCL | ranks 0 and 1 on ... share one GPU (...), which
// NCCL refuses: --comm.backend mpi lets them, or ... | 2
TEST_F(NcclStart, IsRefusedWhereRanksShareAGpu) {
  if (runtime().size() == 1) GTEST_SKIP() << "nobody to share with";
  machine_.cuda().uuid = "the only one";
  const std::string fault = refused<ConfigError>();
  EXPECT_NE(fault.find("--comm.backend mpi"), std::string::npos) << fault;
  EXPECT_NE(fault.find("ranks 0 and 1"), std::string::npos) << fault;
}

TEST_F(NcclStart, GoesWellOtherwise) {
  const auto carrier = make_nccl_carrier(machine_.parts(), runtime().world(), hosts_);
  const auto comm = carrier->extend(runtime().group("extended", all_ranks()), kLane);
  const Tensor data = machine_.on_device(std::vector<float>(10, 1.0f));
  const auto sum = static_cast<float>(comm->size());
  EXPECT_EQ(machine_.read<float>(comm->all_reduce(machine_.stream(), data, ReduceOp::kSum), data),
            std::vector<float>(10, sum));
  machine_.drain();  // the engine asks the carrier's operations whether they have ended
}

}  // namespace
}  // namespace trireme
