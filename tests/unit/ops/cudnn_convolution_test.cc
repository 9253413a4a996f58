// Which convolutions cuDNN takes for a Hopper GPU, asked of cuDNN itself on a machine without one,
// as cudnn_attention_test does.
#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "ops/convolution_engine.h"
#include "support/described_gpu.h"

namespace trireme {
namespace {

using ops::ConvolutionShape;

class CudnnConvolution : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!find_cuda_driver()) GTEST_SKIP() << dlerror();
    try {
      engine = ops::make_cudnn_convolution_for(hopper(), kHopper, false);
    } catch (const CudaError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::string why_not(const ConvolutionShape& shape, DType dtype = DType::kBF16) {
    return engine->why_not(ops::Context(), {shape, dtype});
  }

  std::shared_ptr<ops::ConvolutionEngine> engine;
};

ConvolutionShape square(std::int64_t side, std::int64_t in, std::int64_t out, std::int64_t kernel,
                        std::int64_t stride = 1, std::int64_t groups = 1) {
  return {.batch = 32,
          .height = side,
          .width = side,
          .in_channels = in,
          .out_channels = out,
          .kernel_height = kernel,
          .kernel_width = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .groups = groups};
}

TEST_F(CudnnConvolution, TakesTheModels) {
  EXPECT_EQ(engine->description().substr(0, 8), "cuDNN 9.");
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    SCOPED_TRACE(name_of(dtype));
    EXPECT_EQ(why_not(square(56, 64, 64, 3), dtype), "");
    EXPECT_EQ(why_not(square(56, 64, 128, 3, 2), dtype), "");
    EXPECT_EQ(why_not(square(28, 128, 256, 1, 2), dtype), "");  // a shortcut that halves
  }
  EXPECT_EQ(why_not(square(224, 3, 64, 7, 2), DType::kF32), "");  // a stem
}

TEST_F(CudnnConvolution, LeavesMatrixProductsToTheirLibrary) {
  EXPECT_EQ(why_not(square(28, 128, 256, 1)), "a matrix product");
}

// Tensor cores take channels eight by eight; a picture has three.
TEST_F(CudnnConvolution, SaysWhatItDoesNotTake) {
  EXPECT_NE(why_not(square(224, 3, 64, 7, 2)), "");  // which pass it is differs among versions
}

TEST_F(CudnnConvolution, DoesNotRunOnADescription) {
  ops::Context ctx;
  EXPECT_THROW(engine->forward(ctx, {square(8, 16, 16, 3), DType::kF32}, {}, {}, {}),
               InternalError);
}

}  // namespace
}  // namespace trireme
