// Device and pinned memory, streams, events and copies, on a scripted runtime.
#include <random>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/tensor/copy.h"
#include "trireme/tensor/cuda.h"
#include "trireme/tensor/cuda_shareable.h"

#include "support/fake_cuda.h"

namespace trireme {
namespace {

using cuda::OwnedStream;
using testing::FakeCuda;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr auto kUse = MemoryUse::kActivations;

class CudaMemory : public ::testing::Test {
 protected:
  void start(std::uint64_t seed = 0, std::size_t memory = 64 * kMiB) {
    fake_ = std::make_shared<FakeCuda>(seed, memory);
    first_ = std::make_unique<OwnedStream>(fake_, 0);
    second_ = std::make_unique<OwnedStream>(fake_, 0, true);
    allocator_ = cuda::make_device_allocator(fake_, 0);
    pinned_ = cuda::make_pinned_allocator(fake_, 0);
  }
  // All of it ended: nothing is left and nothing was touched after its end.
  void end() {
    allocator_.reset();
    pinned_.reset();
    fake_->run_all();
    first_.reset();
    second_.reset();
    EXPECT_EQ(fake_->device_blocks(), 0u);
    EXPECT_EQ(fake_->pinned_blocks(), 0u);
    EXPECT_EQ(fake_->events(), 0u);
    EXPECT_EQ(fake_->streams(), 0u);
    EXPECT_EQ(fake_->faults(), std::vector<std::string>());
  }
  const Stream& first() const { return first_->get(); }
  const Stream& second() const { return second_->get(); }
  Tensor on_device(std::int64_t n, const Stream& stream) {
    return Tensor::allocate(*allocator_, stream, {n}, DType::kI32, kUse);
  }
  Tensor pinned(std::int64_t n) {
    return Tensor::allocate(*pinned_, Stream(), {n}, DType::kI32, kUse);
  }
  void fill(const Buffer& block, int byte, std::size_t bytes, const Stream& stream) {
    fake_->fill(block.get(), byte, bytes, stream.native());
  }

  std::shared_ptr<FakeCuda> fake_;
  std::unique_ptr<OwnedStream> first_, second_;
  std::shared_ptr<Allocator> allocator_, pinned_;
};

TEST_F(CudaMemory, OneStreamReusesABlockWithoutAskingOrWaiting) {
  start();
  EXPECT_EQ(allocator_->device(), (Device{DeviceKind::kCuda, 0}));
  const void* before = nullptr;
  {
    const Buffer block = allocator_->allocate(1000, kUse, first());
    before = block.get();
    fill(block, 1, 1000, first());
  }
  const std::size_t calls = fake_->calls();
  const Buffer again = allocator_->allocate(990, kUse, first());
  EXPECT_EQ(again.get(), before);
  EXPECT_EQ(fake_->calls(), calls);
  EXPECT_EQ(fake_->host_waits(), 0u);
  EXPECT_EQ(fake_->device_blocks(), 1u);
}

TEST_F(CudaMemory, AnotherStreamWaitsForTheFirstOnTheDevice) {
  start();
  int seen = 0;
  const void* before = nullptr;
  {
    const Buffer block = allocator_->allocate(1000, kUse, first());
    before = block.get();
    fake_->enqueue(first(), [&seen] { seen = 1; });
  }
  const Buffer block = allocator_->allocate(1000, kUse, second());
  EXPECT_EQ(block.get(), before);
  EXPECT_EQ(seen, 0);  // the host did not wait
  EXPECT_EQ(fake_->host_waits(), 0u);
  int order = 0;
  fake_->enqueue(second(), [&] { order = seen; });
  second().synchronize();
  EXPECT_EQ(order, 1);  // the device did
}

TEST_F(CudaMemory, AUseOnAnotherStreamIsWaitedForByTheFirst) {
  start();
  int reader = 0, writer = 0;
  {
    const Buffer block = allocator_->allocate(1000, kUse, first());
    const Buffer view(block, block.get() + 8);
    record_use(view, second());
    fake_->enqueue(second(), [&reader] { reader = 1; });
  }
  const Buffer block = allocator_->allocate(1000, kUse, first());
  fake_->enqueue(first(), [&] { writer = reader; });
  first().synchronize();
  EXPECT_EQ(writer, 1);
  EXPECT_EQ(fake_->device_blocks(), 1u);
}

TEST_F(CudaMemory, TheNewestBlockOfTheSameStreamGoesFirst) {
  start();
  Buffer mine = allocator_->allocate(1000, kUse, first());
  Buffer other = allocator_->allocate(1000, kUse, second());
  const void* expected = mine.get();
  mine.reset();
  other.reset();
  const std::size_t calls = fake_->calls();
  EXPECT_EQ(allocator_->allocate(1000, kUse, first()).get(), expected);
  EXPECT_EQ(fake_->calls(), calls);  // no event
}

TEST_F(CudaMemory, CachedBlocksAreGivenBackBeforeItGivesUp) {
  start();
  { const Buffer block = allocator_->allocate(40 * kMiB, kUse, first()); }
  EXPECT_EQ(allocator_->stats().reserved, 40 * kMiB);
  const Buffer block = allocator_->allocate(48 * kMiB, MemoryUse::kParameters, first());
  EXPECT_EQ(allocator_->stats().reserved, 48 * kMiB);
  try {
    allocator_->allocate(20 * kMiB, kUse, first());
    FAIL() << "there was more than the device has";
  } catch (const OutOfMemoryError& error) {
    EXPECT_STREQ(error.what(),
                 "out of memory on cuda:0: 20.0 MiB more were asked for, for activations; in use: "
                 "parameters 48 MiB, "
                 "gradients 0 MiB, optimizer 0 MiB, activations 0 MiB, workspace 0 MiB, "
                 "communication 0 MiB; the device has 16 of 64 MiB free; a smaller --batch.micro, "
                 "--run.precision bf16, --recompute.mode full, or more --grid.tensor or "
                 "--grid.pipeline would need less");
  }
  EXPECT_EQ(allocator_->stats().peak[static_cast<std::size_t>(kUse)], 40 * kMiB);
}

TEST_F(CudaMemory, TheReserveGoesBackToTheDevice) {
  start();
  const Buffer held = allocator_->allocate(kMiB, kUse, first());
  { const Buffer block = allocator_->allocate(40 * kMiB, kUse, first()); }
  EXPECT_EQ(fake_->memory_info(0).free, 23 * kMiB);
  allocator_->give_back_reserve();
  EXPECT_EQ(allocator_->stats().reserved, kMiB);
  EXPECT_EQ(fake_->memory_info(0).free, 63 * kMiB);
}

TEST_F(CudaMemory, TheLimitHolds) {
  start();
  const auto limited = cuda::make_device_allocator(fake_, 0, 8 * kMiB);
  const Buffer block = limited->allocate(5 * kMiB, kUse, first());
  EXPECT_THROW(limited->allocate(4 * kMiB, kUse, first()), OutOfMemoryError);
}

TEST_F(CudaMemory, RefusesAStreamOfAnotherDevice) {
  start();
  EXPECT_THROW(allocator_->allocate(64, kUse, Stream()), InternalError);
  const OwnedStream elsewhere(fake_, 1);
  EXPECT_THROW(allocator_->allocate(64, kUse, elsewhere.get()), InternalError);
}

TEST_F(CudaMemory, PinnedMemoryWaitsForItsCopies) {
  start();
  const Tensor device = on_device(4, first());
  Tensor source = pinned(4);
  const void* busy = source.raw();
  for (int i = 0; i < 4; ++i) source.data<std::int32_t>()[i] = 10 + i;
  copy_to_device(source, device, first());
  source = {};
  Tensor next = pinned(4);
  EXPECT_NE(next.raw(), busy);  // the copy has not been made yet
  std::fill_n(next.data<std::int32_t>(), 4, -1);
  const Tensor back = pinned(4);
  copy_to_host(device, back, first());
  EXPECT_EQ(fake_->host_waits(), 0u);
  first().synchronize();
  EXPECT_EQ(back.data<std::int32_t>()[3], 13);
  EXPECT_EQ(pinned(4).raw(), busy);  // now it has
}

TEST_F(CudaMemory, PinnedMemoryGoesBackToTheSystemAfterItsCopies) {
  start();
  const Tensor device = on_device(16, first());
  const auto limited = cuda::make_pinned_allocator(fake_, 0, 8192);
  {
    const Tensor source = Tensor::allocate(*limited, Stream(), {16}, DType::kI32, kUse);
    std::fill_n(source.data<std::int32_t>(), 16, 5);
    copy_to_device(source, device, first());
  }
  const Buffer large = limited->allocate(8192, kUse, Stream());
  EXPECT_EQ(device.address<std::int32_t>()[15], 5);  // device memory is the fake's
  fake_->run_all();
  EXPECT_EQ(fake_->faults(), std::vector<std::string>());
}

TEST_F(CudaMemory, ShareableMemoryIsOfNoStreamAndKeepsItsAddresses) {
  start();
  {
    const auto shareable = cuda::make_shareable_allocator(fake_, 0);
    EXPECT_EQ(shareable->device(), allocator_->device());
    Buffer block = shareable->allocate(1000, kUse, Stream());
    const void* busy = block.get();
    EXPECT_TRUE(fake_->is_shareable(busy, 1000));
    const Tensor other = on_device(250, first());
    EXPECT_FALSE(fake_->is_shareable(other.raw(), other.bytes()));
    fill(block, 1, 1000, first());
    record_use(block, first());
    block.reset();
    const Buffer next = shareable->allocate(1000, kUse, Stream());
    EXPECT_NE(next.get(), busy);  // the stream has not come so far
    EXPECT_EQ(fake_->host_waits(), 0u);
    first().synchronize();
    EXPECT_EQ(shareable->allocate(1000, kUse, Stream()).get(), busy);
    EXPECT_EQ(shareable->stats().reserved, 2048u);
    EXPECT_EQ(allocator_->stats().live[static_cast<std::size_t>(kUse)], 1024u);
  }
  end();
}

TEST_F(CudaMemory, WhereAUseCannotBeMarkedTheHostWaits) {
  start();
  int reader = 0;
  {
    const Buffer block = allocator_->allocate(1000, kUse, first());
    record_use(block, second());
    fake_->enqueue(second(), [&reader] { reader = 1; });
    fake_->fail_call(1);
  }
  EXPECT_EQ(reader, 1);
  EXPECT_EQ(fake_->host_waits(), 1u);
}

TEST_F(CudaMemory, CopiesOfOrdinaryMemoryAreDoneAtOnce) {
  start();
  const Tensor device = on_device(3, first());
  std::vector<std::int32_t> source{1, 2, 3}, back(3);
  copy(Tensor::wrap(std::span(source)), device, first());
  source.assign(3, 0);
  const Tensor other = on_device(3, first());
  copy(device, other, first());
  copy(other, Tensor::wrap(std::span(back)), first());
  EXPECT_EQ(back, (std::vector<std::int32_t>{1, 2, 3}));
  copy(Tensor::wrap(std::span(back)), Tensor::wrap(std::span(source)), Stream());
  EXPECT_EQ(source, back);
}

TEST_F(CudaMemory, CopiesRefuseWhatDoesNotFit) {
  start();
  const Tensor device = on_device(3, first());
  EXPECT_THROW(copy(device, pinned(4), first()), InternalError);
  EXPECT_THROW(copy(device, pinned(3), Stream()), InternalError);
  EXPECT_THROW(copy_to_device(device, pinned(3), first()), InternalError);
  EXPECT_THROW(copy_to_host(pinned(3), device, first()), InternalError);
  EXPECT_THROW(device.data<std::int32_t>(), InternalError);
  EXPECT_EQ(device.address<std::int32_t>(), device.raw());
  EXPECT_THROW(device.address<float>(), InternalError);
}

TEST_F(CudaMemory, EventsOrderStreams) {
  start();
  cuda::Event event(fake_, 0);
  EXPECT_TRUE(event.done());
  int value = 0, seen = 0;
  fake_->enqueue(first(), [&value] { value = 1; });
  event.record(first());
  EXPECT_FALSE(event.done());
  event.make_wait(second());
  fake_->enqueue(second(), [&] { seen = value; });
  second().synchronize();
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(event.done());
  event.synchronize();
}

// A few steps as training makes them: two streams, blocks that come and go, copies both ways. Every
// value is checked when it is read, so work that overtakes other work is seen.
class Steps {
 public:
  Steps(FakeCuda& fake, Allocator& device, Allocator& pinned, const Stream& first,
        const Stream& second, std::uint64_t seed)
      : fake_(fake), device_(device), pinned_(pinned), streams_{first, second}, random_(seed) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step(static_cast<std::int32_t>(random_() % 1000));
  }
  int wrong() const { return *wrong_; }

 private:
  void step(std::int32_t value) {
    const Stream& stream = streams_[random_() % 2];
    const Stream& other = streams_[random_() % 2];
    const auto n = static_cast<std::int64_t>(1 + random_() % 600);
    const Tensor source = Tensor::allocate(pinned_, Stream(), {n}, DType::kI32, kUse);
    std::fill_n(source.data<std::int32_t>(), n, value);
    const Tensor data = Tensor::allocate(device_, stream, {n}, DType::kI32, kUse);
    copy_to_device(source, data, stream);
    cuda::Event ready({&fake_, [](cuda::Runtime*) {}}, 0);
    ready.record(stream);
    ready.make_wait(other);
    data.record_use(other);
    const auto* elements = data.address<std::int32_t>();
    fake_.enqueue(other, [elements, n, value, wrong = wrong_] {
      for (std::int64_t i = 0; i < n; ++i) *wrong += elements[i] != value;
    });
  }

  FakeCuda& fake_;
  Allocator& device_;
  Allocator& pinned_;
  const Stream streams_[2];
  std::mt19937_64 random_;
  std::shared_ptr<int> wrong_ = std::make_shared<int>(0);
};

TEST_F(CudaMemory, NoWorkOvertakesAnotherWhateverTheDelays) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    start(seed);
    Steps steps(*fake_, *allocator_, *pinned_, first(), second(), seed);
    steps.run(60);
    fake_->run_all();
    EXPECT_EQ(steps.wrong(), 0) << "seed " << seed;
    end();
  }
}

TEST_F(CudaMemory, MemoryThatRunsShortIsGivenBackInOrder) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    start(seed, 8192);
    Steps steps(*fake_, *allocator_, *pinned_, first(), second(), seed);
    steps.run(60);
    fake_->run_all();
    EXPECT_EQ(steps.wrong(), 0) << "seed " << seed;
    end();
  }
}

TEST_F(CudaMemory, EveryCallMayFail) {
  std::size_t total = 0;
  for (std::size_t n = 0; n == 0 || n <= total; ++n) {
    start(7, 8192);
    const std::size_t before = fake_->calls();
    Steps steps(*fake_, *allocator_, *pinned_, first(), second(), 7);
    fake_->fail_call(n);
    bool failed = false;
    try {
      steps.run(12);
    } catch (const CudaError&) {
      failed = true;
    } catch (const OutOfMemoryError&) {
    }
    fake_->fail_call(0);
    if (n == 0) {
      EXPECT_FALSE(failed);
      total = fake_->calls() - before;
      EXPECT_GT(total, 50u);
    }
    steps.run(3);  // one failed call is no end
    fake_->run_all();
    EXPECT_EQ(steps.wrong(), 0) << "call " << n;
    EXPECT_EQ(allocator_->stats().total_live, 0u) << "call " << n;
    end();
  }
}

TEST_F(CudaMemory, ADeviceThatIsGoneLeaksNothing) {
  start(3);
  Steps steps(*fake_, *allocator_, *pinned_, first(), second(), 3);
  steps.run(20);
  fake_->fail_all(true);
  EXPECT_THROW(steps.run(1), CudaError);
  EXPECT_THROW(first().synchronize(), CudaError);
  end();
}

TEST(CudaRuntime, SaysWhatItIsWithoutADevice) {
  const std::shared_ptr<cuda::Runtime> runtime = cuda::make_runtime();
  const cuda::Devices devices = runtime->devices();
  EXPECT_EQ(devices.count == 0, !devices.why_none.empty());
  if (devices.count == 0) {
    EXPECT_THROW(runtime->properties(0), CudaError);
  }
  EXPECT_EQ(runtime->runtime_version() == 0, cuda::build_info().toolkit.empty());
  EXPECT_EQ(cuda::version_text(12080), "12.8");
}

}  // namespace
}  // namespace trireme
