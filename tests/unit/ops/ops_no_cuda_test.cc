// What operations on a GPU say in a build without CUDA.
#include <string>

#include <gtest/gtest.h>

#include "trireme/ops/elementwise.h"

#include "ops/matmul_engine.h"

namespace trireme {
namespace {

TEST(NoCuda, OperationsSayWhatIsMissing) {
  ops::Context ctx = ops::make_cpu_context(1);
  const Tensor x = ctx.allocate({4}, DType::kF32);
  ctx.device = {DeviceKind::kCuda, 1};
  std::string message;
  try {
    ops::gelu(ctx, x, x);
  } catch (const InternalError& error) {
    message = error.what();
  }
  EXPECT_EQ(message, "gelu has no implementation for cuda:1 in this build");
  EXPECT_THROW(ops::write_step_state(ctx, {}), InternalError);
  EXPECT_THROW(ops::write_step_inputs(ctx, {}), InternalError);
  EXPECT_THROW(ops::read_step_state(ctx), InternalError);
}

TEST(NoCuda, MatrixProductsSayWhatIsMissing) {
  EXPECT_THROW(ops::make_cublaslt_matmul({}, ops::GpuSettings()), CudaError);
}

}  // namespace
}  // namespace trireme
