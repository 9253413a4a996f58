// GELU as an epilogue of products by cuBLASLt. That the numbers are right is for
// ops_matmul_test.cc.
#include "support/cublaslt_testing.h"

namespace trireme {
namespace {

using testing::CublasLt;
using testing::some_call;
using testing::with_bias;
using testing::with_gelu;

TEST_F(CublasLt, GeluIsAnEpilogueWithWhatItNeeds) {
  const auto engine = ops::make_cublaslt_matmul(library_.table(), 0);
  using enum DType;
  using enum ops::Epilogue;
  const auto epilogue = [&] { return library_.queries().back().operation.epilogue; };
  for (const DType dtype : {kF32, kBF16, kF16}) {
    EXPECT_TRUE(engine->fuses(with_gelu(some_call(dtype, dtype), kGelu)));
    EXPECT_EQ(epilogue(), CUBLASLT_EPILOGUE_GELU_AUX);
    EXPECT_EQ(library_.queries().back().operation.auxiliary_leading, 8);
    EXPECT_EQ(library_.queries().back().preference.reductions,
              CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    EXPECT_TRUE(engine->fuses(with_gelu(with_bias(some_call(dtype, dtype), dtype), kGelu)));
    EXPECT_EQ(epilogue(), CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    ops::MatmulCall backward = with_gelu(some_call(dtype, dtype), kGeluBackward);
    EXPECT_TRUE(engine->fuses(backward));
    EXPECT_EQ(epilogue(), CUBLASLT_EPILOGUE_DGELU);
    // The library would give a bias's gradient in the result's type, where a sum is ours to round.
    backward.bias_gradient = static_cast<float*>(backward.c);
    EXPECT_EQ(engine->fuses(backward), dtype == kF32);
    if (dtype == kF32) {
      EXPECT_EQ(epilogue(), CUBLASLT_EPILOGUE_DGELU_BGRAD);
    }
  }
  // Rows of the auxiliary matrix that do not begin at multiples of 8 elements.
  const std::size_t asked = library_.queries().size();
  ops::MatmulCall narrow = with_gelu(some_call(kBF16, kBF16), kGelu);
  narrow.n = 4;
  EXPECT_FALSE(engine->fuses(narrow));
  EXPECT_EQ(library_.queries().size(), asked);
}

TEST_F(CublasLt, WhereGeluHasNoAlgorithmItIsAskedOnceAndNotFused) {
  for (const cublasStatus_t status : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE}) {
    const auto engine = ops::make_cublaslt_matmul(library_.table(), 0);
    const std::size_t before = library_.queries().size();
    library_.gelu_status = status;
    const auto call = with_gelu(some_call(DType::kBF16, DType::kBF16), ops::Epilogue::kGelu);
    for (int step = 0; step < 3; ++step) EXPECT_FALSE(engine->fuses(call));
    EXPECT_EQ(library_.queries().size(), before + 1);
    EXPECT_TRUE(engine->fuses(with_bias(some_call(DType::kBF16, DType::kBF16), DType::kBF16)));
  }
}

// The gradient of a bias is a sum over rows: over columns of the library's transposed view.
TEST_F(CublasLt, ABiasGradientSumsOverRows) {
  ops::Context ctx = context();
  const Tensor dy = numbers(ctx, {2, 1}, DType::kF32);      // 1, 2
  const Tensor weight = numbers(ctx, {1, 8}, DType::kF32);  // 1 .. 8
  const Tensor pre = numbers(ctx, {2, 8}, DType::kF32), dpre = numbers(ctx, {2, 8}, DType::kF32);
  const Tensor sums = numbers(ctx, {8}, DType::kF32);
  for (int i = 0; i < 16; ++i) pre.address<float>()[i] = 20.0f;  // where GELU's slope is 1
  const ops::MatmulCall call = {.m = 2,
                                .n = 8,
                                .k = 1,
                                .a = dy.raw(),
                                .b = weight.raw(),
                                .c = dpre.raw(),
                                .epilogue = ops::Epilogue::kGeluBackward,
                                .auxiliary = pre.raw(),
                                .bias_gradient = sums.address<float>()};
  ASSERT_TRUE(ctx.matmul->fuses(call));
  ctx.matmul->run(ctx, call);
  ctx.stream.synchronize();
  for (int i = 0; i < 8; ++i) {
    const auto column = static_cast<float>(i + 1);
    EXPECT_EQ(dpre.address<float>()[i], column);
    EXPECT_EQ(dpre.address<float>()[8 + i], 2.0f * column);
    EXPECT_EQ(sums.address<float>()[i], 3.0f * column);
  }
}

TEST_F(CublasLt, AnAuxiliaryMatrixMayMoveBetweenCalls) {
  ops::Context ctx = context();
  const Tensor x = numbers(ctx, {1, 1}, DType::kF32), weight = numbers(ctx, {8, 1}, DType::kF32);
  const Tensor pres = numbers(ctx, {2, 8}, DType::kF32), y = numbers(ctx, {1, 8}, DType::kF32);
  for (const std::int64_t row : {0, 1}) {
    ops::linear_gelu(ctx, x, weight, Tensor(), pres.rows(row, row + 1), y);
    ctx.stream.synchronize();
    EXPECT_EQ(pres.address<float>()[8 * row + 7], 8.0f);
    EXPECT_EQ(y.address<float>()[7], 8.0f);
  }
  EXPECT_EQ(library_.queries().size(), 1u);
}

TEST_F(CublasLt, AnErrorAtAnyCallOfAGeluToo) {
  library_.workspace = 256;
  expect_errors_of_every_call("with a bias, then GELU", [](ops::Context& ctx) {
    const Tensor pre = numbers(ctx, {2, 8}, DType::kBF16), y = numbers(ctx, {2, 8}, DType::kBF16);
    ops::linear_gelu(ctx, numbers(ctx, {2, 3}, DType::kBF16), numbers(ctx, {8, 3}, DType::kBF16),
                     numbers(ctx, {8}, DType::kBF16), pre, y);
    ctx.stream.synchronize();
    EXPECT_EQ(static_cast<float>(pre.address<BFloat16>()[0]), 14.0f + 1.0f);
    EXPECT_EQ(static_cast<float>(y.address<BFloat16>()[0]), 14.0f + 1.0f);
  });
}

}  // namespace
}  // namespace trireme
