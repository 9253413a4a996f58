// Faults while tensors of a device travel: no stream hangs, nothing is left. Clean under
// -fsanitize=thread.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/staging_testing.h"

namespace trireme {
namespace {

using Step = Task::Step;
using testing::DeviceStagingTest;

TEST_F(DeviceStagingTest, AFaultOfTheHostsPartIsToldAndStreamsGoOn) {
  start(3);
  Tensor data = produced(1);
  Work work =
      submit(with_host_part(data, []() -> Step { throw LostRankError("the connection is lost"); }));
  EXPECT_THROW(work.wait_host(), LostRankError);
  EXPECT_THROW(work.wait_on(compute()), LostRankError);
  compute().synchronize();
  // Whoever did not wait is told by the next operation.
  EXPECT_THROW(staging_->throw_fault(), LostRankError);
  EXPECT_THROW(doubling(data), LostRankError);
  data = {};
  work = {};
  end();
}

TEST_F(DeviceStagingTest, TheEndDropsWhatIsUnderWay) {
  start(3);
  Tensor data = produced(1);
  for (int lane = 0; lane < 3; ++lane) {
    for (int i = 0; i < 2; ++i) {
      submit(with_host_part(data, [] { return Step::kIdle; }), lane);
    }
  }
  engine_->stop();
  compute().synchronize();
  data = {};
  end();
}

TEST_F(DeviceStagingTest, WhatIsStagedAndNotCarriedLeavesNothing) {
  start(3);
  doubling(produced(1));
  compute().synchronize();
  end();
}

// Driven by hand, so that the calls are the same every time.
TEST_F(DeviceStagingTest, EveryCallMayFail) {
  for (const StagingOptions& options : {StagingOptions{}, {.chunk_bytes = 64}}) {
    std::size_t total = 0;
    for (std::size_t n = 0; n == 0 || n <= total; ++n) {
      start(7, options);
      const std::size_t before = fake_->calls();
      int failed = 0;
      fake_->fail_call(n);
      try {
        for (int round = 0; round < 3; ++round) {
          const Tensor data = produced(round);
          drive(*doubling(data, 1));
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
    start(n, {.chunk_bytes = n % 2 == 0 ? kChunkBytes : 64});
    fake_->fail_call(n);
    std::vector<Work> works;
    int failed = 0;
    try {
      for (int round = 0; round < 6; ++round) {
        const Tensor data = produced(round);
        works.push_back(submit(doubling(data), round % 2));
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

}  // namespace
}  // namespace trireme
