// The order in which hosts enter NCCL and wait for MPI.
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/message_of.h"
#include "support/nccl_machine.h"

namespace trireme {
namespace {

using testing::Machine;
using testing::message_of;
using testing::runtime;

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

// Enters NCCL and MPI as training does: tensor and pipeline, then data, and verdicts between them;
// where the first operation between two ranks needs the hosts of both.
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

}  // namespace
}  // namespace trireme
