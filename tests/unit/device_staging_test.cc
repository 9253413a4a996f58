// How tensors of a device travel, without MPI: the host's part is a function of the test. On a
// scripted runtime, whose streams move late or at random and whose calls fail. Clean under
// -fsanitize=thread.
#include "comm/device_staging.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/base/error.h"
#include "trireme/tensor/copy.h"

#include "comm/mpi_device_support.h"
#include "comm/self_communicator.h"
#include "support/fake_cuda.h"

namespace trireme {
namespace {

using Step = Task::Step;
using testing::FakeCuda;

class FunctionTask final : public Task {
 public:
  explicit FunctionTask(std::function<Step()> advance) : advance_(std::move(advance)) {}
  Step advance() override { return advance_(); }

 private:
  std::function<Step()> advance_;
};

constexpr std::int64_t kElements = 100;

class DeviceStagingTest : public ::testing::Test {
 protected:
  void start(std::uint64_t seed = 0, const StagingOptions& options = {}) {
    fake_ = std::make_shared<FakeCuda>(seed);
    fake_->deadlock_seconds = 10.0;
    compute_ = std::make_unique<cuda::OwnedStream>(fake_, 0);
    memory_ = cuda::make_device_allocator(fake_, 0);
    staging_ = std::make_shared<DeviceStaging>(fake_, 0, options);
    engine_ = std::make_unique<ProgressEngine>(recorder_);
  }
  // Nothing is left, whatever has happened; streams go on.
  void end() {
    engine_.reset();
    fake_->run_all();
    EXPECT_EQ(staging_->pinned_memory().total_live, 0u);
    staging_.reset();
    memory_.reset();
    fake_->run_all();
    compute_.reset();
    EXPECT_EQ(fake_->device_blocks(), 0u);
    EXPECT_EQ(fake_->pinned_blocks(), 0u);
    EXPECT_EQ(fake_->events(), 0u);
    EXPECT_EQ(fake_->streams(), 0u);
    EXPECT_EQ(fake_->faults(), std::vector<std::string>());
  }
  const Stream& compute() const { return compute_->get(); }

  // Device memory that a kernel fills.
  Tensor produced(std::int32_t value) {
    const Tensor data = empty();
    auto* elements = data.address<std::int32_t>();
    fake_->enqueue(compute(), [=] { std::fill_n(elements, kElements, value); });
    return data;
  }
  Tensor empty() {
    return Tensor::allocate(*memory_, compute(), {kElements}, DType::kI32, MemoryUse::kActivations);
  }
  // A kernel that looks at the memory.
  void consume(const Tensor& data, std::int32_t expected) {
    const auto* elements = data.address<std::int32_t>();
    fake_->enqueue(compute(), [=, this] {
      for (std::int64_t i = 0; i < kElements; ++i) wrong_ += elements[i] != expected;
      ++consumed_;
    });
  }
  // An operation that doubles data in place on the host, `pace` steps after it has begun.
  std::unique_ptr<StagedTask> doubling(Tensor data, int lane = 1, int pace = 2) {
    auto task = staging_->stage({.lane = lane}, compute(), {{data, Part::Use::kBoth}}, false);
    task->set_host_part(std::make_unique<FunctionTask>([data, pace]() mutable {
      if (pace-- > 0) return Step::kIdle;
      for (std::int32_t& element : data.span<std::int32_t>()) element *= 2;
      return Step::kDone;
    }));
    return task;
  }
  std::unique_ptr<StagedTask> with_host_part(Tensor data, std::function<Step()> part,
                                             int lane = 1) {
    auto task = staging_->stage({.lane = lane}, compute(), {{data, Part::Use::kBoth}}, false);
    task->set_host_part(std::make_unique<FunctionTask>(std::move(part)));
    return task;
  }
  Work submit(std::unique_ptr<StagedTask> task, int lane = 1) {
    const Events arrivals{task->arrival()};
    std::vector<ProgressEngine::Queued> operations;
    operations.push_back(
        {.key = {.lane = lane}, .name = "test", .bytes = 0, .task = std::move(task)});
    return make_device_work(engine_->submit(std::move(operations)), arrivals);
  }
  static void drive(Task& task) {
    while (!task.may_begin()) {
    }
    while (task.advance() != Step::kDone) {
    }
  }

  FlightRecorder recorder_;
  std::shared_ptr<FakeCuda> fake_;
  std::unique_ptr<cuda::OwnedStream> compute_;
  std::shared_ptr<Allocator> memory_;
  std::shared_ptr<DeviceStaging> staging_;
  std::unique_ptr<ProgressEngine> engine_;
  int wrong_ = 0, consumed_ = 0;  // by kernels, under the fake's lock
};

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

TEST_F(DeviceStagingTest, AFaultOfTheHostsPartIsToldAndStreamsGoOn) {
  for (const bool stream_waits : {true, false}) {
    StagingOptions options;
    options.stream_waits = stream_waits;
    start(3, options);
    Tensor data = produced(1);
    Work work = submit(
        with_host_part(data, []() -> Step { throw LostRankError("the connection is lost"); }));
    if (stream_waits) {
      try {
        work.wait_on(compute());
      } catch (const LostRankError&) {  // it was as fast as that
      }
    }
    EXPECT_THROW(work.wait_host(), LostRankError);
    EXPECT_THROW(work.wait_on(compute()), LostRankError);
    compute().synchronize();
    // Whoever did not wait on the host is told by the next operation.
    EXPECT_THROW(staging_->throw_fault(), LostRankError);
    EXPECT_THROW(doubling(data), LostRankError);
    data = {};
    work = {};
    end();
  }
}

TEST_F(DeviceStagingTest, TheEndLetsGoOfStreams) {
  start(3);
  Tensor data = produced(1);
  for (int lane = 0; lane < 3; ++lane) {
    for (int i = 0; i < 2; ++i) {
      submit(with_host_part(
                 data, [] { return Step::kIdle; }, lane),
             lane)
          .wait_on(compute());
    }
  }
  engine_->stop();
  compute().synchronize();
  data = {};
  end();
}

TEST_F(DeviceStagingTest, AFaultElsewhereLetsGoOfStreams) {
  start(3);
  Tensor data = produced(1);
  const auto idle = [] { return Step::kIdle; };
  submit(with_host_part(data, idle)).wait_on(compute());
  staging_->release_streams();
  submit(with_host_part(data, idle)).wait_on(compute());  // one that comes later, too
  compute().synchronize();
  data = {};
  end();
}

TEST_F(DeviceStagingTest, WhatIsStagedAndNotCarriedLetsGoOfStreams) {
  start(3);
  Tensor data = produced(1);
  doubling(data)->arrival()->make_wait(compute());
  compute().synchronize();
  data = {};
  end();
}

// Driven by hand, so that the calls are the same every time.
TEST_F(DeviceStagingTest, EveryCallMayFail) {
  for (const bool stream_waits : {true, false}) {
    std::size_t total = 0;
    for (std::size_t n = 0; n == 0 || n <= total; ++n) {
      StagingOptions options;
      options.stream_waits = stream_waits;
      start(7, options);
      const std::size_t before = fake_->calls();
      int failed = 0;
      fake_->fail_call(n);
      try {
        for (int round = 0; round < 3; ++round) {
          const Tensor data = produced(round);
          const auto task = doubling(data, round % 2, 1);
          const std::shared_ptr<cuda::Event> arrival = task->arrival();
          if (arrival) arrival->make_wait(compute());
          drive(*task);
        }
      } catch (const CudaError& error) {
        ++failed;
        EXPECT_NE(std::string(error.what()).find("scripted failure"), std::string::npos);
      }
      fake_->fail_call(0);
      if (n == 0) total = fake_->calls() - before;
      EXPECT_EQ(failed, n == 0 ? 0 : 1) << "call " << n << " of " << total;
      compute().synchronize();
      end();
    }
    EXPECT_GT(total, 30u);
  }
}

// The same with the engine's thread, and a call at any moment.
TEST_F(DeviceStagingTest, ACallMayFailInAnyThread) {
  for (std::size_t n = 1; n <= 150; ++n) {
    start(n);
    fake_->fail_call(n);
    std::vector<Work> works;
    int failed = 0;
    try {
      for (int round = 0; round < 6; ++round) {
        const Tensor data = produced(round);
        works.push_back(submit(doubling(data, round % 2), round % 2));
        works.back().wait_on(compute());
      }
    } catch (const CudaError&) {
      ++failed;
    }
    for (const Work& work : works) {
      try {
        work.wait_host();
      } catch (const CudaError&) {
        ++failed;
      }
    }
    fake_->fail_call(0);
    works.clear();
    EXPECT_LE(failed, 3);
    compute().synchronize();
    end();
  }
}

TEST_F(DeviceStagingTest, ADeviceThatIsGoneLeaksNothing) {
  start(3);
  Tensor data = produced(1);
  std::atomic<bool> gate = false;
  Work work = submit(with_host_part(data, [&] { return gate ? Step::kDone : Step::kIdle; }));
  fake_->fail_all(true);
  gate = true;
  EXPECT_THROW(work.wait_host(), CudaError);
  EXPECT_THROW(doubling(data), CudaError);
  fake_->fail_all(false);
  data = {};
  work = {};
  end();
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
