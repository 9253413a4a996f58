// Operations that are dropped while MPI carries their messages.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/comm/collective_tasks.h"

#include "comm/mpi/library_task.h"
#include "comm/mpi/mpi_transport.h"
#include "comm/mpi/mpi_util.h"
#include "support/mpi_test.h"

namespace trireme {
namespace {

using testing::runtime;

constexpr int kTag = 6;  // of this file's messages
constexpr std::size_t kBytes = std::size_t{8} << 20;
constexpr int kFreed = 0x5a, kSent = 0x33;

// Memory that remains when it is freed, to see whether anything writes there.
struct Watched {
  std::unique_ptr<std::byte[]> memory = std::make_unique<std::byte[]>(kBytes);
  bool is_freed = false;

  Tensor tensor() {
    const Buffer buffer(memory.get(), [this](std::byte* freed) {
      std::memset(freed, kFreed, kBytes);
      is_freed = true;
    });
    return Tensor::over(buffer, Device(), {static_cast<std::int64_t>(kBytes)}, DType::kU8);
  }
  bool is_left_alone() const {
    return std::all_of(memory.get(), memory.get() + kBytes,
                       [](std::byte byte) { return byte == std::byte{kFreed}; });
  }
};

// Rank 0 drops what it receives from rank 1.
class DroppedOperations : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runtime().size() < 2) GTEST_SKIP() << "one rank has nothing to send";
    const bool here = runtime().rank() < 2;
    MPI_Comm_split(*static_cast<const MPI_Comm*>(runtime().world().native_mpi()),
                   here ? 0 : MPI_UNDEFINED, runtime().rank(), &pair_);
  }
  void TearDown() override {
    if (pair_ != MPI_COMM_NULL) MPI_Comm_free(&pair_);
  }
  TransportPtr transport() {
    return std::make_shared<MpiTransport>(MpiGroup{.comm = pair_,
                                                   .rank = runtime().rank(),
                                                   .size = 2,
                                                   .tag = kTag,
                                                   .synchronous = true,
                                                   .workspace = nullptr});
  }
  std::unique_ptr<Task> message(Transfer::Direction direction, Tensor tensor) {
    return make_transfer(transport(), {direction, 1 - runtime().rank(), std::move(tensor)});
  }
  static void finish(Task& task) {
    while (task.advance() != Task::Step::kDone) sched_yield();
  }
  // Lets MPI make progress until the other rank has come here too.
  void meet() {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(pair_, &request);
    wait_yielding(request, "meet");
  }
  // What was kept is released by the next call after its messages are done.
  void expect_release(const Watched& watched) {
    MPI_Request none = MPI_REQUEST_NULL;
    while (!watched.is_freed) {
      keep_until_done({none}, nullptr);
      sched_yield();
    }
    EXPECT_TRUE(watched.is_left_alone());
  }

  MPI_Comm pair_ = MPI_COMM_NULL;
};

TEST_F(DroppedOperations, AMessageThatHasBegunToArriveKeepsItsTensor) {
  if (pair_ == MPI_COMM_NULL) return;
  if (runtime().rank() == 1) {
    Watched sent;
    const auto task = message(Transfer::Direction::kSend, sent.tensor());
    task->advance();
    meet();
    finish(*task);
    meet();
    return;
  }
  Watched received;
  meet();  // the message has been announced
  message(Transfer::Direction::kReceive, received.tensor())->advance();
  meet();  // it has arrived
  expect_release(received);
}

TEST_F(DroppedOperations, AMessageThatNeverCameIsCancelled) {
  if (pair_ == MPI_COMM_NULL || runtime().rank() == 1) return;
  Watched received;
  message(Transfer::Direction::kReceive, received.tensor())->advance();
  expect_release(received);
}

TEST_F(DroppedOperations, WhatIsSentKeepsItsTensor) {
  if (pair_ == MPI_COMM_NULL) return;
  Watched watched;
  std::memset(watched.memory.get(), kSent, kBytes);
  if (runtime().rank() == 1) {
    message(Transfer::Direction::kSend, watched.tensor())->advance();
    EXPECT_FALSE(watched.is_freed);
    meet();
    meet();
    expect_release(watched);
    return;
  }
  meet();
  const auto task = message(Transfer::Direction::kReceive, watched.tensor());
  finish(*task);
  EXPECT_EQ(watched.memory[0], std::byte{kSent});
  EXPECT_EQ(watched.memory[kBytes - 1], std::byte{kSent});
  meet();
}

TEST_F(DroppedOperations, ACollectiveOfMpiKeepsItsTensor) {
  if (pair_ == MPI_COMM_NULL) return;
  Watched watched;
  auto task = make_library_task(
      [comm = pair_, data = watched.memory.get()](MPI_Request* request) {
        return MPI_Ibcast(data, static_cast<int>(kBytes), MPI_BYTE, 1, comm, request);
      },
      {watched.tensor()});
  char go = 0;
  if (runtime().rank() == 1) {
    MPI_Recv(&go, 1, MPI_CHAR, 0, kTag, pair_, MPI_STATUS_IGNORE);
    finish(*task);
    meet();
    return;
  }
  task->advance();
  task.reset();
  EXPECT_FALSE(watched.is_freed);
  MPI_Send(&go, 1, MPI_CHAR, 1, kTag, pair_);
  meet();
  expect_release(watched);
}

}  // namespace
}  // namespace trireme
