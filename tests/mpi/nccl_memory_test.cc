// Memory that communicators over NCCL carry best: how it is registered, and what ends when.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/nccl_machine.h"

namespace trireme {
namespace {

using testing::FakeNccl;
using testing::Machine;
using testing::runtime;

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

// Gathers in place, of two ranges of one block.
TEST(Nccl, RangesOfCarriedMemoryAreRegisteredToo) {
  Machine machine(6);
  const auto comm = machine.communicator();
  const std::int64_t whole = 64 * comm->size(), at = 64 * comm->rank();
  const Tensor block = machine.carried({comm.get()}, 2 * whole);
  std::vector<Gather> gathers;
  for (const std::int64_t begin : {std::int64_t{0}, whole}) {
    const Tensor one = block.flat_range(begin, begin + whole);
    gathers.push_back({one.flat_range(at, at + 64), one});
  }
  const Work work = comm->all_gather_together(machine.stream(), gathers);
  EXPECT_EQ(machine.read<float>(work, block),
            std::vector<float>(static_cast<std::size_t>(2 * whole), 1.0f));
  EXPECT_EQ(machine.nccl().places("all_gather").registered, 2u);
  EXPECT_EQ(machine.nccl().places("all_gather").elsewhere, 0u);
  const Tensor other = machine.on_device(std::vector<float>(static_cast<std::size_t>(whole)));
  comm->all_gather(machine.stream(), block.flat_range(0, 64), other).wait_on(machine.stream());
  EXPECT_EQ(machine.nccl().places("all_gather").elsewhere, 1u);
  machine.stream().synchronize();
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

}  // namespace
}  // namespace trireme
