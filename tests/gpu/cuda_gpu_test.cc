// What the tests on a scripted runtime take for granted of CUDA, on a GPU: memory, streams, events
// and copies. Every value is checked, so work that overtakes other work is seen.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/tensor/captured_work.h"
#include "trireme/tensor/copy.h"
#include "trireme/tensor/cuda.h"

namespace trireme {
namespace {

constexpr auto kUse = MemoryUse::kActivations;

class Gpu : public ::testing::Test {
 protected:
  Tensor on_device(std::int64_t n, const Stream& stream) {
    return Tensor::allocate(*allocator_, stream, {n}, DType::kI32, kUse);
  }
  Tensor pinned(std::int64_t n) {
    return Tensor::allocate(*pinned_, Stream(), {n}, DType::kI32, kUse);
  }

  const std::shared_ptr<cuda::Runtime> runtime_ = cuda::make_runtime();
  const cuda::OwnedStream first_{runtime_, 0}, second_{runtime_, 0, true};
  std::shared_ptr<Allocator> allocator_ = cuda::make_device_allocator(runtime_, 0);
  std::shared_ptr<Allocator> pinned_ = cuda::make_pinned_allocator(runtime_, 0);
};

TEST_F(Gpu, SaysWhatItIs) {
  const cuda::DeviceProperties gpu = runtime_->properties(0);
  const cuda::MemoryInfo memory = runtime_->memory_info(0);
  std::printf("%s, compute capability %d.%d, %s, %zu of %zu MiB free\n", gpu.name.c_str(),
              gpu.major, gpu.minor, gpu.pci_bus_id.c_str(), memory.free >> 20, memory.total >> 20);
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_EQ(gpu.uuid.size(), 32u);
  EXPECT_EQ(gpu.pci_bus_id.size(), 12u) << gpu.pci_bus_id;
  EXPECT_TRUE(gpu.memory_pools);
  EXPECT_LE(memory.free, memory.total);
  EXPECT_GE(runtime_->driver_version() / 1000, runtime_->runtime_version() / 1000);
  EXPECT_THROW(runtime_->properties(1000), CudaError);
}

TEST_F(Gpu, WorkOnTwoStreamsKeepsItsOrder) {
  std::mt19937_64 random(1);
  struct Copied {
    Tensor host;
    std::int32_t value;
  };
  std::vector<Copied> all;
  for (int step = 0; step < 400; ++step) {
    const Stream& stream = (random() % 2 ? first_ : second_).get();
    const Stream& other = (random() % 2 ? first_ : second_).get();
    const auto n = static_cast<std::int64_t>(1 + random() % 200000);
    const Tensor source = pinned(n);
    std::fill_n(source.data<std::int32_t>(), n, step);
    const Tensor data = on_device(n, stream);
    const Tensor doubled = on_device(n, stream);
    runtime_->fill(data.raw(), 0xff, data.bytes(), stream.native());
    copy_to_device(source, data, stream);
    copy(data, doubled, stream);
    cuda::Event ready(runtime_, 0);
    ready.record(stream);
    ready.make_wait(other);
    all.push_back({pinned(n), step});
    copy_to_host(doubled, all.back().host, other);
    if (all.size() < 40) continue;
    first_.get().synchronize();
    second_.get().synchronize();
    for (const Copied& copied : all) {
      for (const std::int32_t value : copied.host.span<std::int32_t>()) {
        ASSERT_EQ(value, copied.value);
      }
    }
    all.clear();
  }
  first_.get().synchronize();
  second_.get().synchronize();
  EXPECT_EQ(allocator_->stats().total_live, 0u);
}

TEST_F(Gpu, AStreamReusesItsBlockAtOnce) {
  const void* before = nullptr;
  {
    const Tensor block = on_device(1000, first_.get());
    before = block.raw();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(before) % 256, 0u);
  }
  EXPECT_EQ(on_device(1000, first_.get()).raw(), before);
}

TEST_F(Gpu, MemoryThatIsShortIsAnErrorAndNoEnd) {
  const std::size_t total = runtime_->memory_info(0).total;
  { const Buffer block = allocator_->allocate(total / 4, kUse, first_.get()); }
  try {
    allocator_->allocate(2 * total, kUse, first_.get());
    FAIL() << "there was more than the device has";
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("MiB free"), std::string::npos) << error.what();
  }
  EXPECT_EQ(allocator_->stats().reserved, 0u);  // what was cached has been given back
  const Tensor small = on_device(4, first_.get());
  const Tensor back = pinned(4);
  runtime_->fill(small.raw(), 1, small.bytes(), first_.get().native());
  copy_to_host(small, back, first_.get());
  first_.get().synchronize();
  EXPECT_EQ(back.data<std::int32_t>()[3], 0x01010101);
}

// input to output through memory of its own, part of the way on the second stream.
// Where it was not rehearsed, memory is had while it is captured.
TEST_F(Gpu, CapturedWorkIsReplayedWithNewInput) {
  for (const bool rehearses : {true, false}) {
    constexpr std::int64_t kElements = 100000;
    const Stream& stream = first_.get();
    const Tensor input = on_device(kElements, stream), output = on_device(kElements, stream);
    const auto work = [&] {
      cuda::Event ready(runtime_, 0), done(runtime_, 0);
      const Tensor a = on_device(kElements, stream);
      copy(input, a, stream);
      ready.record(stream);
      ready.make_wait(second_.get());
      const Tensor b = on_device(kElements, second_.get());
      copy(a, b, second_.get());
      done.record(second_.get());
      done.make_wait(stream);
      copy(b, output, stream);
    };
    cuda::CapturedWork captured(runtime_, stream, allocator_);
    for (std::int32_t step = 0; step < 5; ++step) {
      const Tensor given = pinned(kElements), back = pinned(kElements);
      std::fill_n(given.data<std::int32_t>(), kElements, step);
      copy_to_device(given, input, stream);
      if (step == 0 && rehearses) captured.rehearse(work);
      if (step == 0 && !rehearses) work();
      if (step == 1) captured.capture(work);
      if (step > 0) captured.replay();
      // What others do with memory meanwhile.
      for (const Stream& other : {stream, second_.get()}) {
        const Tensor scratch = on_device(kElements, other);
        runtime_->fill(scratch.raw(), 0xff, scratch.bytes(), other.native());
      }
      copy_to_host(output, back, stream);
      stream.synchronize();
      for (const std::int32_t value : back.span<std::int32_t>()) ASSERT_EQ(value, step);
    }
    EXPECT_EQ(captured.operations(), 3u);
  }
}

TEST_F(Gpu, ACapturedKernelPublishesANumberForTheHost) {
  const Stream& stream = first_.get();
  const auto numbers = [&](const std::shared_ptr<Allocator>& allocator, const Stream& where) {
    return Tensor::allocate(*allocator, where, {2}, DType::kI64, kUse);
  };
  const Tensor given = numbers(pinned_, Stream()), seen = numbers(pinned_, Stream());
  const Tensor number = numbers(allocator_, stream);
  std::atomic_ref mark(seen.data<std::int64_t>()[1]);
  seen.data<std::int64_t>()[0] = mark = -1;
  cuda::CapturedWork captured(runtime_, stream, allocator_);
  captured.capture([&] {
    runtime_->publish(seen.data<std::int64_t>() + 1, number.address<std::int64_t>(),
                      stream.native());
  });
  for (const std::int64_t step : {std::int64_t{1}, std::int64_t{5} << 40}) {
    *given.data<std::int64_t>() = step;
    copy_to_device(given, number, stream);
    captured.replay();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (mark.load() != step && std::chrono::steady_clock::now() < limit) {
    }
    EXPECT_EQ(mark.load(), step);
    stream.synchronize();
    EXPECT_EQ(seen.data<std::int64_t>()[0], -1);
  }
  EXPECT_EQ(captured.operations(), 1u);
}

TEST_F(Gpu, WhatCannotBeCapturedLeavesTheStreamAsItWas) {
  const Stream& stream = first_.get();
  const Tensor data = on_device(4, stream), back = pinned(4);
  const auto fill = [&](int byte) {
    runtime_->fill(data.raw(), byte, data.bytes(), stream.native());
  };
  const std::vector<std::function<void()>> wrong = {[&] { stream.synchronize(); },
                                                    [&] {  // and nobody waits for it
                                                      cuda::Event ready(runtime_, 0);
                                                      ready.record(stream);
                                                      ready.make_wait(second_.get());
                                                      runtime_->fill(data.raw(), 9, data.bytes(),
                                                                     second_.get().native());
                                                    }};
  for (const auto& body : wrong) {
    cuda::CapturedWork captured(runtime_, stream, allocator_);
    EXPECT_THROW(captured.capture([&] {
      fill(2);
      body();
    }),
                 CudaError);
    fill(1);
    copy_to_host(data, back, stream);
    stream.synchronize();
    second_.get().synchronize();
    EXPECT_EQ(back.data<std::int32_t>()[3], 0x01010101);
  }
}

TEST_F(Gpu, ADoneEventSaysSo) {
  cuda::Event event(runtime_, 0);
  EXPECT_TRUE(event.done());
  event.record(first_.get());
  event.synchronize();
  EXPECT_TRUE(event.done());
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const trireme::cuda::Devices found = trireme::cuda::make_runtime()->devices();
  if (found.count == 0) {
    std::printf("skipped: there is no GPU: %s\n", found.why_none.c_str());
    return 77;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
