// A context on a GPU that is scripted: what it owns, in which order that ends, and what it does not
// leave behind.
#include <string>

#include <gtest/gtest.h>

#include "ops/matmul_engine.h"
#include "support/fake_cuda.h"

namespace trireme {
namespace {

using testing::FakeCuda;

struct NoProducts : ops::MatmulEngine {
  void run(ops::Context&, const ops::MatmulCall&) override {}
  std::string_view description(DType) const override { return "none"; }
};

ops::Context make(const std::shared_ptr<FakeCuda>& cuda) {
  return ops::make_cuda_context(cuda, 0, std::make_shared<NoProducts>());
}

void expect_nothing_left(FakeCuda& cuda) {
  cuda.run_all();
  EXPECT_EQ(cuda.device_blocks(), 0u);
  EXPECT_EQ(cuda.streams(), 0u);
  EXPECT_EQ(cuda.events(), 0u);
  EXPECT_TRUE(cuda.faults().empty()) << cuda.faults().front();
}

TEST(CudaContext, HasAStreamMemoryAndAStateOfAFreshRun) {
  const auto cuda = std::make_shared<FakeCuda>();
  {
    const ops::Context ctx = make(cuda);
    EXPECT_EQ(ctx.device, (Device{DeviceKind::kCuda, 0}));
    EXPECT_EQ(ctx.allocator->device(), ctx.device);
    EXPECT_NE(ctx.stream.native(), nullptr);
    EXPECT_EQ(cuda->streams(), 1u);
    EXPECT_EQ(ops::matmul_description(ctx, DType::kF32), "none");
    // The fake's device memory is the host's.
    EXPECT_EQ(ctx.step_state->loss_scale, 1.0f);
    EXPECT_EQ(ctx.step_state->finite, 1);
    EXPECT_EQ(ctx.step_state->step, 0);
  }
  expect_nothing_left(*cuda);
}

TEST(CudaContext, ItsStreamLivesUntilTheLastBlockIsBack) {
  const auto cuda = std::make_shared<FakeCuda>();
  {
    Tensor kept;
    std::shared_ptr<Allocator> allocator;
    {
      ops::Context ctx = make(cuda);
      kept = ctx.allocate({100}, DType::kF32);
      allocator = ctx.allocator;
    }
    EXPECT_EQ(cuda->streams(), 1u);
    allocator.reset();
    EXPECT_EQ(cuda->streams(), 1u);
  }
  expect_nothing_left(*cuda);
}

TEST(CudaContext, AnErrorAtAnyCallLeavesNothing) {
  bool succeeded = false;
  for (std::size_t n = 1; !succeeded; ++n) {
    ASSERT_LT(n, 100u);
    const auto cuda = std::make_shared<FakeCuda>();
    cuda->fail_call(n);
    try {
      make(cuda);
      succeeded = true;
    } catch (const CudaError& error) {
      EXPECT_NE(std::string(error.what()).find("scripted"), std::string::npos) << error.what();
    }
    EXPECT_EQ(succeeded, n > 6) << n;  // a stream, twice memory and a copy, a wait
    cuda->fail_call(0);
    expect_nothing_left(*cuda);
  }
}

// bad input: `cuda.spare` of all multiprocessors | cuda.spare is 1000, but ... has N
// multiprocessors: give fewer | 2
TEST(CudaContext, SomeMultiprocessorsMustBeLeft) {
  const auto cuda = std::make_shared<testing::FakeCuda>();
  try {
    ops::make_cuda_context(cuda, 0, {.spared = 1000});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("cuda.spare is 1000, but ")) << error.what();
  }
}

// Where there is neither GPU nor driver, the first call says so.
TEST(CudaContext, WithoutAGpuSaysWhatIsMissing) {
  const auto runtime = cuda::make_runtime();
  if (runtime->devices().count != 0) GTEST_SKIP() << "there is a GPU";
  try {
    ops::make_cuda_context(runtime, 0);
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_FALSE(std::string(error.what()).empty());
  }
}

}  // namespace
}  // namespace trireme
