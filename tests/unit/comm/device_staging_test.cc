// How tensors of a device travel: what waits for what, with each call of CUDA failing once. No
// stream may wait for the host: what is queued runs with the host's part held back. Clean under
// -fsanitize=thread.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/base/error.h"

#include "comm/device/mpi_device_support.h"
#include "comm/self_communicator.h"
#include "support/message_of.h"
#include "support/staging_testing.h"

namespace trireme {
namespace {

using Step = Task::Step;
using testing::DeviceStagingTest;
using testing::FakeCuda;
using testing::FunctionTask;
using testing::kElements;
using testing::message_of;

TEST_F(DeviceStagingTest, EveryStepWaitsForTheOneBefore) {
  start();
  const Tensor data = produced(3);
  const auto task = doubling(data, 0);
  EXPECT_FALSE(task->may_begin());  // nothing has moved yet
  EXPECT_EQ(task->arrival(), nullptr);
  fake_->run_all();  // the copy to the host is made
  EXPECT_TRUE(task->may_begin());
  EXPECT_EQ(task->advance(), Step::kMoved);
  EXPECT_EQ(task->advance(), Step::kIdle);  // the copy back is queued, not made
  fake_->run_all();
  EXPECT_EQ(task->advance(), Step::kDone);
  consume(data, 6);
  compute().synchronize();
  EXPECT_EQ(consumed_, 1);
  EXPECT_EQ(wrong_, 0);
  EXPECT_EQ(staging_->pinned_memory().live[static_cast<std::size_t>(MemoryUse::kCommunication)],
            staging_->pinned_memory().total_live);
}

// CUDA may wait for all streams of the device, as where a kernel's first launch loads it, and holds
// locks meanwhile that the engine's thread needs. So nothing that is queued may wait for the host.
TEST_F(DeviceStagingTest, NoStreamWaitsForTheHost) {
  for (const StagingOptions& options : {StagingOptions{}, {.chunk_bytes = 64}}) {
    start(0, options);
    fake_->deadlock_seconds = 1.0;
    std::atomic<bool> gate = false;
    const auto part = [&gate] { return gate ? Step::kDone : Step::kIdle; };
    std::vector<Work> works;
    for (int lane = 0; lane < 3; ++lane) {
      for (int i = 0; i < 2; ++i) works.push_back(submit(with_host_part(produced(i), part), lane));
    }
    EXPECT_NO_THROW(fake_->run_all());
    gate = true;
    for (const Work& work : works) {
      while (!work.done()) fake_->run_all();
    }
    works.clear();
    end();
  }
}

TEST_F(DeviceStagingTest, RoundsOfComputingAndCommunicatingWhateverTheDelays) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    StagingOptions options;
    if (seed % 2 == 1) options.chunk_bytes = 64;
    start(seed, options);
    wrong_ = consumed_ = 0;
    for (int round = 0; round < 15; ++round) {
      const int lane = round % 3;
      const Tensor data = produced(round);
      submit(doubling(data), lane).wait_on(compute());
      consume(data, 2 * round);
    }
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
  fake_->run_all();
  while (recorder_.under_way().empty()) sched_yield();
  EXPECT_EQ(recorder_.under_way().front().name, "test");
  gate = true;
  while (!work.done()) fake_->run_all();
}

TEST_F(DeviceStagingTest, PinnedMemoryIsBounded) {
  start(1, {.pinned_limit = 4096});
  const Tensor data = produced(1);
  std::vector<std::unique_ptr<StagedTask>> tasks;
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) tasks.push_back(doubling(data));
      },
      OutOfMemoryError);
  EXPECT_GE(tasks.size(), 4u);
  EXPECT_LE(staging_->pinned_memory().reserved, 4096u);
  for (const auto& task : tasks) drive(*task);
  tasks.clear();
  drive(*doubling(data));  // there is room again
}

// What MPI is given of a device lies in memory that other processes can open, whatever tensors it
// is of. An operation that computes goes by way of the host.
TEST_F(DeviceStagingTest, MpiThatTakesTheDevicesAddressesGetsShareableMemory) {
  constexpr std::size_t kChunk = 64;  // bytes
  for (const std::uint64_t seed : {2u, 3u}) {
    start(seed, {.direct = true, .chunk_bytes = kChunk});
    const auto message = [this](Tensor data, Part::Use use,
                                const std::function<void(Tensor)>& body) {
      const auto make = [this, body](const Tensors& given) {
        EXPECT_EQ(given[0].device(), memory_->device());
        EXPECT_TRUE(fake_->is_shareable(given[0].raw(), given[0].bytes()));
        return std::make_unique<FunctionTask>([body, given, left = 2]() mutable {
          if (left-- > 0) return Step::kIdle;
          body(given[0]);
          return Step::kDone;
        });
      };
      return staging_->stage(compute(), {{data, use}}, {.make = make, .messages = true});
    };
    std::vector<std::int32_t> sent;
    for (int round = 0; round < 5; ++round) {
      const Tensor data = produced(round);
      EXPECT_FALSE(fake_->is_shareable(data.raw(), data.bytes()));
      sent.clear();
      submit(message(data, Part::Use::kRead, [&sent](const Tensor& chunk) {
        const auto* elements = chunk.address<std::int32_t>();
        sent.insert(sent.end(), elements, elements + chunk.elements());
      })).wait_on(compute());
      // What is read may be overwritten when it is copied out.
      fake_->enqueue(compute(),
                     [to = data.address<std::int32_t>()] { std::fill_n(to, kElements, -1); });
      EXPECT_TRUE(engine_->drain(60.0));
      EXPECT_EQ(sent, std::vector<std::int32_t>(kElements, round));

      const Tensor received = empty();
      submit(message(received, Part::Use::kWrite, [round](const Tensor& chunk) {
        std::fill_n(chunk.address<std::int32_t>(), chunk.elements(), 10 + round);
      })).wait_on(compute());
      consume(received, 10 + round);
    }
    compute().synchronize();
    EXPECT_EQ(consumed_, 5);
    EXPECT_EQ(wrong_, 0);
    EXPECT_EQ(staging_->pinned_memory().reserved, 0u);
    EXPECT_GT(staging_->shareable_memory().reserved, 0u);
    drive(*doubling(produced(1)));
    EXPECT_GT(staging_->pinned_memory().reserved, 0u);
    compute().synchronize();
    wrong_ = consumed_ = 0;
    end();
  }
}

// What one operation does to its chunks, one after another: 7 of 16 elements and less.
class ChunkedStagingTest : public DeviceStagingTest {
 protected:
  static constexpr std::size_t kChunk = 64;
  std::unique_ptr<StagedTask> adding(Tensor data, Part::Use use = Part::Use::kBoth) {
    return staging_->stage(compute(), {{data, use}}, {.make = [this](const Tensors& on_host) {
                             return std::make_unique<FunctionTask>([this, on_host] {
                               for (std::int32_t& element : on_host[0].span<std::int32_t>())
                                 element += 10;
                               ++chunks_;
                               return Step::kDone;
                             });
                           }});
  }
  // Advances the task until it says that nothing moves.
  static void advance(Task& task) {
    while (task.advance() == Step::kMoved) {
    }
  }

  int chunks_ = 0;
};

TEST_F(ChunkedStagingTest, CopiesAndTheHostsPartOverlap) {
  start(0, {.chunk_bytes = kChunk});
  const Tensor data = produced(5);
  const auto task = adding(data);
  EXPECT_LE(staging_->pinned_memory().total_live, 3 * kChunk + 64);
  const auto step = [this](int times) {
    for (int i = 0; i < times; ++i) fake_->step();
  };
  step(12);  // the first three are on the host
  EXPECT_TRUE(task->may_begin());
  advance(*task);
  advance(*task);
  EXPECT_EQ(chunks_, 3);  // the fourth needs the place of the first, whose way back is queued alone
  step(2);
  advance(*task);
  EXPECT_EQ(chunks_, 3);  // now the fourth is on its way, while those before go back
  step(2);
  advance(*task);
  EXPECT_GE(chunks_, 4);
  EXPECT_LT(chunks_, 7);
  while (task->advance() != Step::kDone) fake_->step();
  EXPECT_EQ(chunks_, 7);
  consume(data, 15);
  compute().synchronize();
  EXPECT_EQ(consumed_, 1);
  EXPECT_EQ(wrong_, 0);
}

// What is only read, or only written, has one way; a slot that is filled waits for its emptying.
TEST_F(ChunkedStagingTest, OneWay) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    start(seed, {.chunk_bytes = kChunk});
    wrong_ = consumed_ = chunks_ = 0;
    Tensor sent = produced(3), received = produced(4);
    std::vector<std::int32_t> seen;
    const auto sends = [&seen](const Tensors& on_host) {
      return std::make_unique<FunctionTask>([&seen, on_host] {
        const auto part = on_host[0].span<std::int32_t>();
        seen.insert(seen.end(), part.begin(), part.end());
        return Step::kDone;
      });
    };
    const auto receives = [](const Tensors& on_host) {
      return std::make_unique<FunctionTask>([on_host] {
        std::ranges::fill(on_host[0].span<std::int32_t>(), 8);
        return Step::kDone;
      });
    };
    Work send = submit(staging_->stage(compute(), {{sent, Part::Use::kRead}}, {.make = sends}));
    Work receive =
        submit(staging_->stage(compute(), {{received, Part::Use::kWrite}}, {.make = receives}), 2);
    send.wait_on(compute());
    // May be overwritten now.
    fake_->enqueue(compute(), [to = sent.address<std::int32_t>()] { std::fill_n(to, 100, -1); });
    receive.wait_on(compute());
    consume(received, 8);
    compute().synchronize();
    send.wait_host();
    receive.wait_host();
    EXPECT_EQ(seen, std::vector<std::int32_t>(kElements, 3)) << "seed " << seed;
    EXPECT_EQ(consumed_, 1);
    EXPECT_EQ(wrong_, 0) << "seed " << seed;
    sent = received = {};
    send = receive = {};
    end();
  }
}

// What arrives early stays in its slot until the device is done with what was there before.
TEST_F(ChunkedStagingTest, NothingLandsBeforeTheTensorIsReady) {
  start(0, {.chunk_bytes = kChunk});
  const Tensor data = empty();
  auto* elements = data.address<std::int32_t>();
  bool computed = false;
  fake_->enqueue_until(compute(), [&computed] { return [&computed] { return computed; }; });
  fake_->enqueue(compute(), [elements] { std::fill_n(elements, kElements, 4); });
  const auto task = adding(data, Part::Use::kWrite);
  for (int i = 0; i < 20; ++i) {
    fake_->step();
    advance(*task);
  }
  EXPECT_EQ(chunks_, 3);
  computed = true;
  while (task->advance() != Step::kDone) fake_->step();
  EXPECT_EQ(chunks_, 7);
  EXPECT_EQ(std::count(elements, elements + kElements, 4), 0);
}

// Two rows, of which the host is given the same columns.
TEST_F(ChunkedStagingTest, StripsAreCutAtTheSamePlaces) {
  start(3, {.chunk_bytes = kChunk});
  Tensor rows = empty(), sums = Tensor::allocate(*memory_, compute(), {kElements / 2}, DType::kI32,
                                                 MemoryUse::kActivations);
  fake_->enqueue(compute(), [to = rows.address<std::int32_t>()] {
    for (std::int32_t i = 0; i < kElements; ++i) to[i] = i;
  });
  const auto make = [](const Tensors& on_host) {
    return std::make_unique<FunctionTask>([on_host] {
      const auto both = on_host[0].span<std::int32_t>(), sum = on_host[1].span<std::int32_t>();
      EXPECT_EQ(both.size(), 2 * sum.size());
      EXPECT_LE(on_host[0].bytes(), kChunk);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = both[i] + both[sum.size() + i];
      return Step::kDone;
    });
  };
  submit(staging_->stage(compute(), {{rows, Part::Use::kRead, 2}, {sums, Part::Use::kWrite}},
                         {.make = make}))
      .wait_on(compute());
  compute().synchronize();
  for (std::int32_t i = 0; i < kElements / 2; ++i) {
    EXPECT_EQ(sums.address<std::int32_t>()[i], 2 * i + kElements / 2);
  }
}

TEST_F(ChunkedStagingTest, WhatMayNotBeCutTravelsWhole) {
  start(1, {.chunk_bytes = kChunk});
  Tensor data = produced(1);
  std::int64_t given = 0;
  const auto make = [&given](const Tensors& on_host) {
    given = on_host[0].elements();
    return std::make_unique<FunctionTask>([] { return Step::kDone; });
  };
  submit(staging_->stage(compute(), {{data, Part::Use::kBoth}}, {.make = make, .whole = true}))
      .wait_host();
  EXPECT_EQ(given, kElements);
}

TEST_F(DeviceStagingTest, ACommunicatorForTheHostRefusesTensorsOfADevice) {
  start(1);
  const auto self = make_self_communicator("world", 0, 1, /*host_only=*/true);
  const Tensor from = produced(4), to = empty();
  for (const std::string& fault :
       {message_of<InternalError>([&] { self->all_reduce(compute(), from, ReduceOp::kSum); }),
        message_of<InternalError>([&] { self->all_gather(compute(), from, to); })}) {
    EXPECT_NE(fault.find("communicator world was given a tensor of a GPU"), std::string::npos)
        << fault;
  }
  EXPECT_EQ(self->all_reduce_host(7, ReduceOp::kSum), 7);
  compute().synchronize();
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
