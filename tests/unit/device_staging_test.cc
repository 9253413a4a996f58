// How tensors of a device travel: what waits for what. Clean under -fsanitize=thread.
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/base/error.h"

#include "comm/mpi_device_support.h"
#include "comm/self_communicator.h"
#include "support/staging_testing.h"

namespace trireme {
namespace {

using Step = Task::Step;
using testing::DeviceStagingTest;
using testing::FakeCuda;
using testing::FunctionTask;
using testing::kElements;

TEST_F(DeviceStagingTest, EveryStepWaitsForTheOneBefore) {
  start();
  const Tensor data = produced(3);
  const auto task = doubling(data, 1, 0);
  EXPECT_FALSE(task->may_begin());  // nothing has moved yet
  ASSERT_NE(task->arrival(), nullptr);
  task->arrival()->make_wait(compute());
  consume(data, 6);
  cuda::Event copied(fake_, 0);
  copied.record(compute());
  // The copy to the host is made, and all stops at the word.
  fake_->deadlock_seconds = 0.01;
  EXPECT_THROW(compute().synchronize(), CudaError);
  EXPECT_TRUE(task->may_begin());
  EXPECT_FALSE(task->arrival()->done());
  EXPECT_EQ(task->advance(), Step::kMoved);
  EXPECT_EQ(task->advance(), Step::kIdle);  // the copy back is queued, not made
  compute().synchronize();
  EXPECT_EQ(task->advance(), Step::kDone);
  EXPECT_EQ(consumed_, 1);
  EXPECT_EQ(wrong_, 0);
  EXPECT_EQ(staging_->pinned_memory().live[static_cast<std::size_t>(MemoryUse::kCommunication)],
            staging_->pinned_memory().total_live);
}

TEST_F(DeviceStagingTest, RoundsOfComputingAndCommunicatingWhateverTheDelays) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    StagingOptions options;
    options.stream_waits = seed % 4 != 0;
    start(seed, options);
    wrong_ = consumed_ = 0;
    const std::size_t waits = fake_->host_waits();
    for (int round = 0; round < 15; ++round) {
      const int lane = round % 3;
      const Tensor data = produced(round);
      submit(doubling(data, lane), lane).wait_on(compute());
      consume(data, 2 * round);
    }
    EXPECT_EQ(fake_->host_waits(), waits);
    compute().synchronize();
    EXPECT_TRUE(engine_->drain(60.0));
    EXPECT_EQ(consumed_, 15);
    EXPECT_EQ(wrong_, 0) << "seed " << seed;
    end();
  }
}

// The device may have been given its own tensor back by then.
TEST_F(DeviceStagingTest, MemoryIsHeldUntilTheDeviceIsDone) {
  start(5);
  for (int round = 0; round < 10; ++round) {
    submit(doubling(produced(round)));  // nobody waits, nobody holds it
  }
  EXPECT_TRUE(engine_->drain(60.0));
  end();
}

// A block that an operation has used is free when that operation is done, even if the next one of
// the same lane is stuck: a stream that takes it must not wait for that one.
TEST_F(DeviceStagingTest, ALaterOperationHoldsNoMemoryOfAnEarlierOne) {
  start(1);
  Tensor data = produced(1);
  const void* address = data.raw();
  Work first = submit(doubling(data));
  std::atomic<bool> gate = false;
  const Tensor other = produced(2);
  const Work stuck =
      submit(with_host_part(other, [&gate] { return gate ? Step::kDone : Step::kIdle; }));
  first.wait_host();
  data = {};
  const Tensor again = produced(7);
  EXPECT_EQ(again.raw(), address);
  compute().synchronize();
  EXPECT_EQ(*again.address<std::int32_t>(), 7);
  EXPECT_FALSE(stuck.done());
  gate = true;
  stuck.wait_host();
}

TEST_F(DeviceStagingTest, AnOperationIsMissingUntilItsDataAreThere) {
  start();
  std::atomic<bool> gate = false;
  const Tensor data = produced(1);
  const Work work = submit(with_host_part(data, [&] { return gate ? Step::kDone : Step::kIdle; }));
  EXPECT_TRUE(recorder_.under_way().empty());
  fake_->deadlock_seconds = 0.01;
  EXPECT_THROW(fake_->run_all(), CudaError);  // all but what is behind the word
  while (recorder_.under_way().empty()) sched_yield();
  EXPECT_EQ(recorder_.under_way().front().name, "test");
  gate = true;
  fake_->deadlock_seconds = 10.0;
  fake_->run_all();
  work.wait_host();
}

TEST_F(DeviceStagingTest, PinnedMemoryIsBounded) {
  start(1, {.pinned_limit = 4096});
  const Tensor data = produced(1);
  std::vector<std::unique_ptr<StagedTask>> tasks;
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) tasks.push_back(doubling(data, i));
      },
      OutOfMemoryError);
  EXPECT_GE(tasks.size(), 4u);
  EXPECT_LE(staging_->pinned_memory().reserved, 4096u);
  for (const auto& task : tasks) drive(*task);
  tasks.clear();
  drive(*doubling(data));  // there is room again
}

TEST_F(DeviceStagingTest, ADeviceThatCannotWaitForMemoryIsServedByTheHost) {
  fake_ = std::make_shared<FakeCuda>(4);
  fake_->waits_for_memory = false;
  compute_ = std::make_unique<cuda::OwnedStream>(fake_, 0);
  memory_ = cuda::make_device_allocator(fake_, 0);
  staging_ = std::make_shared<DeviceStaging>(fake_, 0, StagingOptions{});
  engine_ = std::make_unique<ProgressEngine>(recorder_);
  const Tensor data = produced(5);
  auto task = doubling(data);
  EXPECT_EQ(task->arrival(), nullptr);
  submit(std::move(task)).wait_on(compute());
  consume(data, 10);
  compute().synchronize();
  EXPECT_EQ(consumed_, 1);
  EXPECT_EQ(wrong_, 0);
}

TEST_F(DeviceStagingTest, MpiMayTakeTheDevicesOwnMemory) {
  for (const bool stream_waits : {true, false}) {
    StagingOptions options;
    options.stream_waits = stream_waits;
    options.direct = true;
    start(2, options);
    for (int round = 0; round < 5; ++round) {
      const Tensor data = produced(round);
      Tensor given = data;
      auto task = staging_->stage({.lane = 1}, compute(), {{given, Part::Use::kRead}}, true);
      EXPECT_EQ(given.raw(), data.raw());
      auto* elements = data.address<std::int32_t>();
      task->set_host_part(std::make_unique<FunctionTask>([elements, round, left = 3]() mutable {
        if (left-- > 0) return Step::kIdle;
        EXPECT_EQ(elements[kElements - 1], round);  // after `ready`
        return Step::kDone;
      }));
      // What is read may not be overwritten before the host's part is done.
      submit(std::move(task)).wait_on(compute());
      fake_->enqueue(compute(), [=] { std::fill_n(elements, kElements, -1); });
    }
    compute().synchronize();
    EXPECT_TRUE(engine_->drain(60.0));
    wrong_ = consumed_ = 0;
    end();
  }
  start(2, {.direct = true});
  Tensor data = produced(1);
  const void* address = data.raw();
  drive(*with_host_part(data, [] { return Step::kDone; }));
  const auto task = staging_->stage({.lane = 1}, compute(), {{data, Part::Use::kBoth}}, false);
  EXPECT_NE(data.raw(), address);  // one that computes goes by way of the host
}

TEST_F(DeviceStagingTest, ARankAloneStaysInTheStream) {
  for (std::uint64_t seed = 0; seed <= 5; ++seed) {
    start(seed);
    wrong_ = consumed_ = 0;
    const auto self = make_self_communicator("self", 0, 1);
    const auto other = std::make_unique<cuda::OwnedStream>(fake_, 0);
    const Tensor from = produced(4), to = empty();
    const std::size_t waits = fake_->host_waits();
    self->all_gather(compute(), from, to);
    consume(to, 4);
    const Tensor back = empty();
    using Direction = Transfer::Direction;
    const Work work =
        self->exchange(compute(), {{Direction::kSend, 0, to}, {Direction::kReceive, 0, back}});
    self->all_reduce(compute(), back, ReduceOp::kSum).wait_on(other->get());
    int seen = 0;
    fake_->enqueue(other->get(), [&, elements = back.address<std::int32_t>()] {
      seen = elements[kElements - 1];
    });
    EXPECT_EQ(fake_->host_waits(), waits);
    work.wait_host();
    EXPECT_TRUE(work.done());
    other->get().synchronize();
    EXPECT_EQ(seen, 4);
    EXPECT_EQ(wrong_, 0);
  }
}

TEST(MpiDeviceSupport, TheLibraryOrTheUserSays) {
  using Yes = int (*)();
  const auto with = [](Yes query) {
    return [query](const char* name) {
      return std::strcmp(name, "MPIX_Query_cuda_support") == 0 ? reinterpret_cast<void*>(query)
                                                               : nullptr;
    };
  };
  const auto nothing = [](const char*) -> void* { return nullptr; };
  EXPECT_TRUE(mpi_device_support(nullptr, with([] { return 1; })).direct);
  EXPECT_FALSE(mpi_device_support(nullptr, with([] { return 0; })).direct);
  EXPECT_EQ(mpi_device_support(nullptr, with([] { return 0; })).why,
            "MPIX_Query_cuda_support of this MPI says no");
  EXPECT_FALSE(mpi_device_support(nullptr, nothing).direct);
  EXPECT_EQ(mpi_device_support(nullptr, nothing).why, "this MPI has no MPIX_Query_cuda_support");
  EXPECT_TRUE(mpi_device_support("1", nothing).direct);
  EXPECT_FALSE(mpi_device_support("0", with([] { return 1; })).direct);
  EXPECT_THROW(mpi_device_support("yes", nothing), ConfigError);
}

}  // namespace
}  // namespace trireme
