// Staging of a device's tensors without MPI: a function of the test does the host's part. It uses a
// scripted runtime, whose streams move late or at random and whose calls may fail.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/device_staging.h"
#include "support/fake_cuda.h"
#include "support/function_task.h"

namespace trireme::testing {

inline constexpr std::int64_t kElements = 100;

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
  // Checks that nothing is left, whatever has happened, and that streams can continue.
  void end() {
    engine_.reset();
    fake_->run_all();
    EXPECT_EQ(staging_->pinned_memory().total_live, 0u);
    EXPECT_EQ(staging_->shareable_memory().total_live, 0u);
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

  // Returns device memory that a queued kernel fills.
  Tensor produced(std::int32_t value) {
    const Tensor data = empty();
    auto* elements = data.address<std::int32_t>();
    fake_->enqueue(compute(), [=] { std::fill_n(elements, kElements, value); });
    return data;
  }
  Tensor empty() {
    return Tensor::allocate(*memory_, compute(), {kElements}, DType::kI32, MemoryUse::kActivations);
  }
  // Queues a kernel that checks the memory.
  void consume(const Tensor& data, std::int32_t expected) {
    const auto* elements = data.address<std::int32_t>();
    fake_->enqueue(compute(), [=, this] {
      for (std::int64_t i = 0; i < kElements; ++i) wrong_ += elements[i] != expected;
      ++consumed_;
    });
  }
  // An operation that doubles data in place on the host, `pace` steps after it has begun.
  std::unique_ptr<StagedTask> doubling(Tensor data, int pace = 2) {
    return staging_->stage(
        compute(), {{data, Part::Use::kBoth}}, {.make = [pace](const Tensors& on_host) {
          return std::make_unique<FunctionTask>([on_host, left = pace]() mutable {
            if (left-- > 0) return Task::Step::kIdle;
            for (std::int32_t& element : on_host[0].span<std::int32_t>()) element *= 2;
            return Task::Step::kDone;
          });
        }});
  }
  std::unique_ptr<StagedTask> with_host_part(Tensor data, std::function<Task::Step()> part) {
    return staging_->stage(compute(), {{data, Part::Use::kBoth}}, {.make = [part](const Tensors&) {
                             return std::make_unique<FunctionTask>(part);
                           }});
  }
  Work submit(std::unique_ptr<StagedTask> task, int lane = 1) {
    const Events arrivals{task->arrival()};
    std::vector<ProgressEngine::Queued> operations;
    operations.push_back(
        {.key = {.lane = lane}, .name = "test", .bytes = 0, .task = std::move(task)});
    return make_device_work(engine_->submit(std::move(operations)), arrivals, recorder_);
  }
  static void drive(Task& task) {
    while (!task.may_begin()) {
    }
    while (task.advance() != Task::Step::kDone) {
    }
  }

  FlightRecorder recorder_;
  std::shared_ptr<FakeCuda> fake_;
  std::unique_ptr<cuda::OwnedStream> compute_;
  std::shared_ptr<Allocator> memory_;
  std::shared_ptr<DeviceStaging> staging_;
  std::unique_ptr<ProgressEngine> engine_;
  int wrong_ = 0, consumed_ = 0;  // written by kernels, under the fake's lock
};

}  // namespace trireme::testing
