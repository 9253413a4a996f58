// Communication over NCCL that is captured and replayed, on a GPU and a NCCL that are scripted.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/tensor/captured_work.h"

#include "comm/nccl/captured_operations.h"
#include "support/message_of.h"
#include "support/nccl_machine.h"

namespace trireme {
namespace {

using testing::Machine;
using testing::message_of;
using testing::runtime;

// Rank r + 1 has what rank r sends it, and all have the sum, in the order of the replays.
TEST(NcclCapture, ReplaysCommunicationWithNewNumbers) {
  for (const std::uint64_t seed : {20u, 21u, 22u}) {
    Machine machine(seed);
    const auto comm = machine.communicator();
    const int ranks = comm->size();
    const auto next = (comm->rank() + 1) % ranks, before = (comm->rank() + ranks - 1) % ranks;
    const Stream& stream = machine.stream();
    const Tensor number = machine.on_device(std::vector<std::int64_t>{0});
    const Tensor data = machine.on_device(std::vector<float>(10, 0.0f));
    const Tensor received = machine.on_device(std::vector<float>(10, 0.0f));
    const auto start_step = [&](std::int64_t step) {
      machine.cuda().enqueue(stream, [=, rank = comm->rank(), to = number.address<std::int64_t>(),
                                      values = data.address<float>()] {
        *to = step;
        std::fill_n(values, 10, static_cast<float>(step * 100 + rank));
      });
    };
    std::vector<Work> works;
    const auto step = [&] {
      using Direction = Transfer::Direction;
      works.push_back(comm->exchange(
          stream, {{Direction::kSend, next, data}, {Direction::kReceive, before, received}}));
      works.back().wait_on(stream);
      works.push_back(comm->all_reduce(stream, data, ReduceOp::kSum));
    };
    cuda::CapturedWork captured(machine.shared_cuda(), stream, machine.allocator());
    start_step(1);
    captured.rehearse(step);
    works.back().wait_host();
    nccl::CapturedOperations communication(machine.session(), stream,
                                           number.address<std::int64_t>());
    communication.held_by(captured.give_up());
    captured.capture([&] {
      step();
      communication.join();  // the sum, which nobody has waited for
    });
    EXPECT_EQ(machine.cuda().published(), 4u);  // where each operation begins and where it ends
    EXPECT_FALSE(works.back().done());
    EXPECT_NE(message_of<InternalError>([&] { works.back().wait_host(); }).find("captured"),
              std::string::npos);
    for (std::int64_t replay = 2; replay < 6; ++replay) {
      start_step(replay);
      communication.replay(replay);
      captured.replay();
      const auto from = static_cast<float>(replay * 100 + before);
      const auto sum = static_cast<float>(replay * 100 * ranks + ranks * (ranks - 1) / 2);
      EXPECT_EQ(machine.read<float>({}, received), std::vector<float>(10, from));
      EXPECT_EQ(machine.read<float>({}, data), std::vector<float>(10, sum));
      // What is not captured may come in between.
      const Tensor other = machine.on_device(std::vector<float>(5, 1.0f));
      EXPECT_EQ(machine.read<float>(comm->all_reduce(stream, other, ReduceOp::kSum), other),
                std::vector<float>(5, static_cast<float>(ranks)));
    }
    machine.drain();
    const auto finished = machine.recorder().finished();
    const auto sums = std::ranges::count_if(
        finished, [](const Operation& operation) { return operation.name == "all_reduce"; });
    EXPECT_EQ(sums, 9);  // one, and four replays, each with another behind it
  }
}

// The watchdog is to name what a rank waits for in a captured step too.
TEST(NcclCapture, TheRecorderKnowsWhatAReplayWaitsFor) {
  Machine machine(23);
  const auto comm = machine.communicator();
  const Stream& stream = machine.stream();
  const Tensor number = machine.on_device(std::vector<std::int64_t>{0});
  const Tensor data = machine.on_device(std::vector<float>(10, 1.0f));
  comm->all_reduce(stream, data, ReduceOp::kSum).wait_host();
  cuda::CapturedWork captured(machine.shared_cuda(), stream, machine.allocator());
  nccl::CapturedOperations communication(machine.session(), stream, number.address<std::int64_t>());
  communication.held_by(captured.give_up());
  captured.capture([&] {
    comm->all_reduce(stream, data, ReduceOp::kSum);
    communication.join();
  });
  const auto replay = [&] {
    machine.cuda().enqueue(stream, [to = number.address<std::int64_t>()] { *to = 1; });
    communication.replay(1);
    captured.replay();
  };
  const auto waits_for_sum = [&] {
    const auto under_way = machine.recorder().under_way();
    return std::ranges::any_of(under_way,
                               [](const Operation& o) { return o.name == "all_reduce"; });
  };
  EXPECT_FALSE(waits_for_sum());
  if (comm->rank() == 0 && comm->size() > 1) {
    replay();
    while (!waits_for_sum()) usleep(100);
  }
  runtime().world().barrier().wait_host();
  if (comm->rank() != 0 || comm->size() == 1) replay();
  stream.synchronize();
  machine.drain();
  EXPECT_FALSE(waits_for_sum());
}

}  // namespace
}  // namespace trireme
