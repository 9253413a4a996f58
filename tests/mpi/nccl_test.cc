// Communicators that give tensors of a GPU to NCCL, on a GPU and a NCCL that are scripted: the
// ranks are those of MPI. What is expected of the numbers is what MPI gives for tensors of the
// host.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"

#include "comm/device_carrier.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/recorder_impl.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/message_of.h"
#include "support/mpi_test.h"

namespace trireme {
namespace {

using testing::FakeCuda;
using testing::FakeNccl;
using testing::message_of;
using testing::runtime;

constexpr int kLane = 77;

std::vector<int> all_ranks() {
  std::vector<int> ranks(static_cast<std::size_t>(runtime().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A rank's GPU and NCCL.
class Machine {
 public:
  explicit Machine(std::uint64_t seed)
      : cuda_(std::make_shared<FakeCuda>(seed + static_cast<std::uint64_t>(runtime().rank()))),
        nccl_(*cuda_, seed * 31 + static_cast<std::uint64_t>(runtime().rank())) {
    cuda_->uuid = "fake " + std::to_string(runtime().rank());
    stream_.emplace(cuda_, 0);
    allocator_ = cuda::make_device_allocator(cuda_, 0);
    session_.emplace(std::shared_ptr<nccl::Library>(std::shared_ptr<void>(), &nccl_), parts());
  }
  ~Machine() {
    engine_.stop();
    allocator_.reset();  // it keeps events
    session_.reset();
    EXPECT_TRUE(cuda_->faults().empty()) << cuda_->faults().front();
    EXPECT_TRUE(nccl_.faults().empty()) << nccl_.faults().front();
    EXPECT_EQ(nccl_.alive(), 0u);
    EXPECT_EQ(nccl_.memory(), 0u);
    EXPECT_EQ(cuda_->events(), 0u);
    EXPECT_EQ(cuda_->streams(), 1u);
    // All ranks are done with each other's NCCL.
    runtime().world().barrier().wait_host();
  }

  DeviceCarrierParts parts() {
    return {
        .cuda = cuda_, .device = 0, .engine = &engine_, .recorder = &recorder_, .timeout_s = 10.0};
  }
  std::unique_ptr<Communicator> communicator(const std::string& name = "all",
                                             const std::vector<int>& ranks = all_ranks()) {
    return nccl::make_communicator(*session_, runtime().group(name, ranks), kLane);
  }
  const Stream& stream() const { return stream_->get(); }

  // On the GPU, written there by a kernel that has not run yet.
  template <class T>
  Tensor on_device(const std::vector<T>& values) {
    const auto n = static_cast<std::int64_t>(values.size());
    const Tensor tensor =
        Tensor::allocate(*allocator_, stream(), {n}, dtype_of<T>(), MemoryUse::kActivations);
    cuda_->enqueue(stream(), [values, to = tensor.address<T>()] { std::ranges::copy(values, to); });
    return tensor;
  }
  // Ones, in memory that the communicators carry best.
  Tensor carried(const std::vector<Communicator*>& carriers, std::int64_t n) {
    const Tensor tensor =
        allocate_carried(carriers, *allocator_, stream(), {n}, DType::kF32, MemoryUse::kGradients);
    cuda_->enqueue(stream(), [n, to = tensor.address<float>()] { std::fill_n(to, n, 1.0f); });
    return tensor;
  }
  std::size_t counted(MemoryUse use) const {
    return allocator_->stats().live[static_cast<std::size_t>(use)];
  }
  std::size_t buffers() const { return nccl_.registered(FakeNccl::Registration::kBuffer); }
  std::size_t windows() const { return nccl_.registered(FakeNccl::Registration::kWindow); }

  template <class T>
  std::vector<T> read(const Work& work, const Tensor& tensor) {
    std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
    work.wait_on(stream());
    cuda_->enqueue(stream(), [&values, from = tensor.address<T>()] {
      std::copy_n(from, values.size(), values.begin());
    });
    stream().synchronize();
    return values;
  }

  FakeCuda& cuda() { return *cuda_; }
  FakeNccl& nccl() { return nccl_; }
  nccl::Session& session() { return *session_; }
  FlightRecorder& recorder() { return recorder_; }

 private:
  std::shared_ptr<FakeCuda> cuda_;
  FakeNccl nccl_;
  std::optional<cuda::OwnedStream> stream_;
  std::shared_ptr<Allocator> allocator_;
  FlightRecorder recorder_;
  ProgressEngine engine_{recorder_};
  std::optional<nccl::Session> session_;
};

template <class T>
std::vector<T> numbers(int rank, std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int value = (rank * 7919 + static_cast<int>(i) * 131) % 61;
    result[i] = T(static_cast<float>(value));
  }
  return result;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
Tensor host(std::vector<T>& values) {
  return Tensor::wrap(std::span<T>(values));
}

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
      comm->all_reduce(Stream(), host(expected), op).wait_host();
      const Tensor data = machine.on_device(part);
      EXPECT_TRUE(same(machine.read<T>(comm->all_reduce(stream, data, op), data), expected));

      std::vector<T> scattered(n);
      auto input = whole;
      comm->reduce_scatter(Stream(), host(input), host(scattered), op).wait_host();
      const Tensor from = machine.on_device(whole);
      const Tensor to = machine.on_device(part);
      EXPECT_TRUE(same(machine.read<T>(comm->reduce_scatter(stream, from, to, op), to), scattered));
    }
    std::vector<T> gathered(n * ranks);
    auto own = part;
    comm->all_gather(Stream(), host(own), host(gathered)).wait_host();
    const Tensor input = machine.on_device(part);
    const Tensor output = machine.on_device(whole);
    EXPECT_TRUE(same(machine.read<T>(comm->all_gather(stream, input, output), output), gathered));

    std::vector<T> exchanged(n * ranks);
    auto given = whole;
    comm->all_to_all(Stream(), host(given), host(exchanged)).wait_host();
    const Tensor sent = machine.on_device(whole);
    EXPECT_TRUE(same(machine.read<T>(comm->all_to_all(stream, sent, output), output), exchanged));

    for (int root = 0; root < comm->size(); ++root) {
      const Tensor data = machine.on_device(part);
      EXPECT_TRUE(
          same(machine.read<T>(comm->broadcast(stream, data, root), data), numbers<T>(root, n)));
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

// One of NCCL's own, in the window of the first communicator and a buffer of the second.
TEST(Nccl, CarriedMemoryIsRegistered) {
  struct Case {
    bool windows, mapped;
    std::size_t expected_windows, expected_buffers;
  };
  for (const Case& c : {Case{true, true, 1, 1}, Case{true, false, 0, 2}, Case{false, true, 0, 2}}) {
    Machine machine(5);
    machine.nccl().windows = c.windows;
    machine.nccl().peers_are_mapped = c.mapped;
    const auto first = machine.communicator("first");
    const auto second = machine.communicator("second");
    const std::size_t before = machine.counted(MemoryUse::kGradients);
    Tensor data = machine.carried({first.get(), second.get()}, 100);
    EXPECT_EQ(machine.nccl().memory(), 1u);
    EXPECT_EQ(machine.windows(), c.expected_windows);
    EXPECT_EQ(machine.buffers(), c.expected_buffers);
    EXPECT_EQ(machine.counted(MemoryUse::kGradients), before + 400);
    const auto sum = static_cast<float>(first->size() * first->size());
    first->all_reduce(machine.stream(), data, ReduceOp::kSum).wait_on(machine.stream());
    const Work work = second->all_reduce(machine.stream(), data, ReduceOp::kSum);
    EXPECT_EQ(machine.read<float>(work, data), std::vector<float>(100, sum));
    data = {};
    EXPECT_EQ(machine.windows() + machine.buffers() + machine.nccl().memory(), 0u);
    EXPECT_EQ(machine.counted(MemoryUse::kGradients), before);
  }
}

// What is on its way is waited for; the scripted NCCL writes down what is let go of too early.
TEST(Nccl, CarriedMemoryIsHeldUntilTheDeviceIsDone) {
  Machine machine(16);
  const auto comm = machine.communicator();
  for (int round = 0; round < 10; ++round) {
    const Tensor data = machine.carried({comm.get()}, 100);
    comm->all_reduce(machine.stream(), data, ReduceOp::kSum);
  }
}

TEST(Nccl, WhatTheHostCarriesNeedsNoRegistration) {
  Machine machine(17);
  const auto comm = machine.communicator();
  const std::size_t before = machine.nccl().calls();
  const auto allocator = make_caching_allocator(Device());
  const Tensor data = allocate_carried({comm.get()}, *allocator, Stream(), {100}, DType::kF32,
                                       MemoryUse::kGradients);
  EXPECT_EQ(data.device(), Device());
  EXPECT_EQ(machine.nccl().calls(), before);
}

// All ranks do without, and the run's rank 0 says so once.
class NcclRefusal : public ::testing::Test {
 protected:
  void expect_one_line(const std::string& words) {
    const auto first = machine_.communicator("first");
    const auto second = machine_.communicator("second");
    ::testing::internal::CaptureStderr();
    for (int round = 0; round < 2; ++round) {
      refuse_();
      const Tensor data = machine_.carried({first.get(), second.get()}, 100);
      EXPECT_LE(machine_.windows() + machine_.buffers(), 1u);  // with the second alone
      EXPECT_EQ(machine_.counted(MemoryUse::kGradients), held_);
      const Work work = first->all_reduce(machine_.stream(), data, ReduceOp::kSum);
      EXPECT_EQ(machine_.read<float>(work, data),
                std::vector<float>(100, static_cast<float>(first->size())));
    }
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::ranges::count(said, '\n'), runtime().rank() == 0 ? 1 : 0) << said;
    if (runtime().rank() == 0) {
      EXPECT_NE(said.find(words), std::string::npos) << said;
    }
    machine_.session().check();
  }

  Machine machine_{18};
  bool last_ = runtime().rank() == runtime().size() - 1;
  std::function<void()> refuse_ = [] {};
  std::size_t held_ = 400;
};

TEST_F(NcclRefusal, OfMemory) {
  if (last_) machine_.nccl().memory_limit = 100;
  if (last_) held_ = 448;  // the allocator's, in whole classes of sizes
  expect_one_line("does not register memory with first: there is too little memory");
}

TEST_F(NcclRefusal, OfAWindow) {
  refuse_ = [this] { machine_.nccl().fail_call(2, FakeNccl::Result::kSystemError, false); };
  expect_one_line("does not register memory with first: scripted error 2");
}

TEST_F(NcclRefusal, OfABufferOnOneRank) {
  machine_.nccl().windows = false;
  refuse_ = [this] {
    if (last_) machine_.nccl().fail_call(2, FakeNccl::Result::kSystemError, false);
  };
  expect_one_line("does not register memory with first: scripted error 2");
}

// Nothing is ended by hand: the communicator is aborted with its registrations, and the memory goes
// back after that.
TEST(Nccl, CarriedMemoryOutlivesAFault) {
  Machine machine(19);
  EXPECT_THROW(
      {
        const auto comm = machine.communicator();
        const Tensor data = machine.carried({comm.get()}, 100);
        if (runtime().rank() == 0) comm->all_reduce(machine.stream(), data, ReduceOp::kSum);
        throw DataError("something else");
      },
      DataError);
  EXPECT_EQ(machine.nccl().memory(), 1u);
  EXPECT_EQ(machine.windows(), 0u);
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
  machine.cuda().enqueue_until(machine.stream(), [&] { return computed.load(); });
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
      // At the end of a communicator, which throws nothing itself.
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
    // Before anything of it is under way.
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
  EXPECT_THROW(comm->all_gather(machine.stream(), there, host(values)), InternalError);
  EXPECT_THROW(comm->all_reduce(Stream(), there, ReduceOp::kSum), InternalError);
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

// A wait for MPI while an operation of NCCL has not settled.
TEST(Nccl, AWaitForMpiOutOfOrderIsCaught) {
  Machine machine(13);
  const auto comm = machine.communicator();
  const auto main_thread = std::this_thread::get_id();
  std::string fault;
  bool asked = false;
  const Tensor data = machine.on_device(std::vector<float>(64, 1.0f));
  for (int step = 0; step < 20; ++step) {
    machine.nccl().on_poll = [&] {
      if (std::this_thread::get_id() != main_thread || asked) return;
      asked = true;
      fault = message_of<InternalError>([&] { comm->agree(true); });
    };
    comm->all_reduce(machine.stream(), data, ReduceOp::kSum).wait_host();
  }
  machine.nccl().on_poll = nullptr;
  EXPECT_TRUE(comm->agree(true));  // the one that was refused is not on its way
  EXPECT_NE(fault.find("wait for MPI (all_reduce of all) while all_reduce of all"),
            std::string::npos)
      << fault;
}

// As training enters NCCL and MPI: tensor and pipeline, then data, and verdicts between them; where
// the first operation between two ranks needs the hosts of both.
TEST(Nccl, TheOrderOfTrainingConnects) {
  if (runtime().size() % 2 != 0) GTEST_SKIP() << "a grid of 2 x n";
  for (std::uint64_t seed = 20; seed < 25; ++seed) {
    Machine machine(seed);
    machine.nccl().connects = true;
    const int rank = runtime().rank(), half = rank / 2 * 2;
    std::vector<int> same_place;
    for (int other = rank % 2; other < runtime().size(); other += 2) same_place.push_back(other);
    const auto world = machine.communicator("world");
    const auto tensor = machine.communicator("tensor", {half, half + 1});
    const auto data = machine.communicator("data", same_place);
    const int next = (rank + 1) % world->size();
    const int before = (rank + world->size() - 1) % world->size();
    const Stream& stream = machine.stream();
    const Tensor gradients = machine.carried({data.get()}, 100);
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(world->all_reduce_host(1, ReduceOp::kSum), world->size());
      const Tensor activations = machine.on_device(std::vector<float>(100, 1.0f));
      tensor->all_reduce(stream, activations, ReduceOp::kSum).wait_on(stream);
      const Tensor received = machine.on_device(std::vector<float>(100, 0.0f));
      using Direction = Transfer::Direction;
      const Work sent = world->exchange(
          stream, {{Direction::kSend, next, activations}, {Direction::kReceive, before, received}});
      data->all_reduce(stream, gradients, ReduceOp::kMax).wait_on(stream);
      EXPECT_TRUE(world->agree(true));
      EXPECT_EQ(machine.read<float>(sent, received), std::vector<float>(100, 2.0f));
    }
  }
}

// Rank 0 is in NCCL before it comes to MPI, the others first wait for it there. Where ranks have
// connected before, that goes well, so only the first operation shows it.
TEST(Nccl, AnOrderThatDiffersBetweenRanksIsAHang) {
  if (runtime().size() == 1) GTEST_SKIP() << "no other order";
  for (const bool connects : {false, true}) {
    Machine machine(26);
    machine.nccl().connects = connects;
    machine.session().set_timeout(0.3);
    const bool first = runtime().rank() == 0;
    const auto comm = machine.communicator();
    const Tensor data = machine.on_device(std::vector<float>(64, 1.0f));
    const auto sum = [&] { comm->all_reduce(machine.stream(), data, ReduceOp::kSum); };
    std::string fault;
    if (first) fault = message_of<Error>(sum);
    runtime().world().barrier().wait_host();
    if (!first && !connects) sum();
    if (!first && connects) machine.session().abort();
    if (first && connects) {
      EXPECT_NE(fault.find("did not get through with all_reduce of all"), std::string::npos)
          << fault;
    } else if (first) {
      EXPECT_EQ(fault, "no error");
    }
  }
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

TEST_F(NcclStart, IsRefusedWhereVersionsDiffer) {
  if (runtime().size() == 1) GTEST_SKIP() << "one version";
  if (last()) machine_.nccl().reported_version = 22703;
  const std::string fault = refused<NcclError>();
  for (const std::string& word : {name_of_last(), std::string("2.27.3"), std::string("2.28.9")}) {
    EXPECT_NE(fault.find(word), std::string::npos) << fault;
  }
}

TEST_F(NcclStart, IsRefusedWhereItIsTooOld) {
  if (last()) machine_.nccl().reported_version = 21803;
  const std::string fault = refused<NcclError>();
  for (const std::string& word : {name_of_last(), std::string("2.18.3"), std::string("2.19.0")}) {
    EXPECT_NE(fault.find(word), std::string::npos) << fault;
  }
}

TEST_F(NcclStart, IsRefusedWhereOneHasNone) {
  if (last()) machine_.nccl().found = false;
  EXPECT_EQ(refused<NcclError>(), name_of_last() + ": no NCCL is here");
}

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
}

}  // namespace
}  // namespace trireme
