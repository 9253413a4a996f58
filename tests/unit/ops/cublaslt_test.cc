// Matrix products by cuBLASLt, on a GPU and a library that are scripted. That the numbers are right
// for every transposition, type and shape is for ops_matmul_test.cc, which ops_emulated_test runs
// on the same scripted library; here is what numbers do not show.
#include "trireme/base/dynamic_library.h"

#include "support/cublaslt_testing.h"

namespace trireme {
namespace {

using ops::Transpose;
using testing::CublasLt;
using testing::FakeCublasLt;
using testing::kMostWorkspace;
using testing::some_call;
using testing::with_bias;
using testing::with_gelu;

TEST_F(CublasLt, QueuesTheProductWithItsBiasOnTheContextsStream) {
  library_.workspace = 1000;
  {
    ops::Context ctx = context();
    const auto workspace = static_cast<std::size_t>(MemoryUse::kWorkspace);
    const std::size_t of_context = ctx.allocator->stats().live[workspace];
    const Tensor x = numbers(ctx, {1, 2}, DType::kF32);       // 1 2
    const Tensor weight = numbers(ctx, {3, 2}, DType::kF32);  // 1 2, 3 4, 5 6
    const Tensor bias = numbers(ctx, {3}, DType::kF32);
    const Tensor y = numbers(ctx, {1, 3}, DType::kF32);
    ops::linear(ctx, x, weight, bias, y);
    EXPECT_EQ(y.address<float>()[0], 1.0f) << "the product did not wait for the stream";
    ctx.stream.synchronize();
    const std::vector<float> values(y.address<float>(), y.address<float>() + 3);
    EXPECT_EQ(values, (std::vector<float>{5.0f + 1, 11.0f + 2, 17.0f + 3}));
    ASSERT_EQ(library_.queries().size(), 1u);
    EXPECT_EQ(library_.queries()[0].operation.epilogue, CUBLASLT_EPILOGUE_BIAS);
    EXPECT_GE(ctx.allocator->stats().peak[workspace], of_context + 1000);
    EXPECT_EQ(ctx.allocator->stats().live[workspace], of_context);
  }
  expect_nothing_left();
}

TEST_F(CublasLt, FusesABiasOfTheResultsTypeAlone) {
  const auto engine = ops::make_cublaslt_matmul(library_.table(), 0);
  using enum DType;
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kBF16, kBF16), kBF16)));
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kBF16, kF32), kF32)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kBF16, kBF16), kF32)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kBF16, kF32), kBF16)));
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kF16, kF16), kF16)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kF16, kF16), kBF16)));
}

TEST_F(CublasLt, ABiasMayMoveBetweenCalls) {
  ops::Context ctx = context();
  const Tensor x = numbers(ctx, {1, 1}, DType::kF32), weight = numbers(ctx, {4, 1}, DType::kF32);
  const Tensor biases = numbers(ctx, {2, 4}, DType::kF32), y = numbers(ctx, {1, 4}, DType::kF32);
  for (const std::int64_t row : {0, 1}) {
    ops::linear(ctx, x, weight, biases.rows(row, row + 1).reshape({4}), y);
    ctx.stream.synchronize();
    EXPECT_EQ(y.address<float>()[3], 4.0f + 4.0f * static_cast<float>(row + 1));
  }
  EXPECT_EQ(library_.queries().size(), 1u);
}

TEST_F(CublasLt, ChoosesAnAlgorithmOncePerShapeAndLayout) {
  ops::Context ctx = context();
  const auto chosen = [&] { return library_.queries().size(); };
  for (int step = 0; step < 3; ++step) product(ctx, 3, 4, 5);
  EXPECT_EQ(chosen(), 1u);
  product(ctx, 4, 3, 5);
  product(ctx, 3, 4, 5, DType::kBF16);
  EXPECT_EQ(chosen(), 3u);
  const Tensor square = numbers(ctx, {4, 4}, DType::kF32), c = numbers(ctx, {4, 4}, DType::kF32);
  const Tensor bias = numbers(ctx, {4}, DType::kF32);
  for (int step = 0; step < 2; ++step) {
    for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
        for (const float beta : {0.0f, 1.0f}) ops::matmul(ctx, square, ta, square, tb, beta, c);
      }
    }
    ops::linear(ctx, square, square, bias, c);
  }
  EXPECT_EQ(chosen(), 3u + 8u + 1u);
}

TEST_F(CublasLt, AnAlgorithmIsChosenForTheAlignmentOfItsOperands) {
  ops::Context ctx = context();
  product(ctx, 3, 4, 5);
  const auto alignment = [&] { return library_.queries().back().preference.alignment; };
  using Four = std::array<std::uint32_t, 4>;
  EXPECT_EQ(alignment(), (Four{16, 16, 16, 16}));  // 16 at most: more differs from run to run
  product(ctx, 3, 4, 5, DType::kF32, 1);           // its A is our b
  EXPECT_EQ(alignment(), (Four{16, 4, 16, 16}));
  product(ctx, 3, 4, 5, DType::kF32, 0, 2);
  EXPECT_EQ(alignment(), (Four{8, 16, 16, 16}));
  product(ctx, 3, 4, 5, DType::kF32, 0, 0, 3);
  EXPECT_EQ(alignment(), (Four{16, 16, 4, 4}));
  product(ctx, 3, 4, 5, DType::kBF16, 1, 2);
  EXPECT_EQ(alignment(), (Four{4, 2, 16, 16}));
  EXPECT_EQ(library_.queries().size(), 5u);
  product(ctx, 3, 4, 5, DType::kF32, 3);  // as aligned as one that was there
  EXPECT_EQ(library_.queries().size(), 5u);

  const Tensor x = numbers(ctx, {3, 5}, DType::kF32), weight = numbers(ctx, {4, 5}, DType::kF32);
  const Tensor y = numbers(ctx, {3, 4}, DType::kF32);
  for (const std::int64_t skip : {0, 1, 2, 4, 3, 0}) {
    ops::linear(ctx, x, weight, numbers(ctx, {4}, DType::kF32, skip), y);
  }
  EXPECT_EQ(library_.queries().size(), 5u + 3u);
}

TEST_F(CublasLt, AlgorithmsMayOnlySplitASumInOrderAndInFp32) {
  ops::Context ctx = context();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    product(ctx, 3, 4, 5, dtype);
    const FakeCublasLt::Query& query = library_.queries().back();
    EXPECT_EQ(query.preference.reductions, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    EXPECT_EQ(query.preference.workspace, kMostWorkspace);
    EXPECT_EQ(query.operation.scale, CUDA_R_32F);
    EXPECT_EQ(query.operation.compute, CUBLAS_COMPUTE_32F);
  }
}

TEST_F(CublasLt, Tf32OnRequestAndForFp32Alone) {
  ops::Context ctx = context({.tf32 = true});
  product(ctx, 3, 4, 5, DType::kF32);
  EXPECT_EQ(library_.queries().back().operation.compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  product(ctx, 3, 4, 5, DType::kBF16);
  EXPECT_EQ(library_.queries().back().operation.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(ops::matmul_description(ctx, DType::kF32), "cuBLASLt 13.0.2 (TF32)");
  EXPECT_EQ(ops::matmul_description(ctx, DType::kBF16), "cuBLASLt 13.0.2");
  EXPECT_EQ(ops::matmul_description(context(), DType::kF32), "cuBLASLt 13.0.2");
}

TEST_F(CublasLt, LeavesMultiprocessorsToOthers) {
  cuda::DeviceProperties device;
  device.multiprocessors = 132;
  EXPECT_EQ(ops::product_settings(device, {}).multiprocessors, 0);
  for (const int spared : {0, 16}) {
    ops::Context ctx = context(ops::product_settings(device, {.spared = spared}));
    product(ctx, 3, 4, 5, DType::kBF16);
    EXPECT_EQ(library_.queries().back().operation.multiprocessors, spared == 0 ? 0 : 116);
  }
}

TEST_F(CublasLt, AnErrorAtAnyCallNamesItAndTheShapeAndLeavesNothing) {
  library_.workspace = 256;
  expect_errors_of_every_call("with a bias", [](ops::Context& ctx) {
    const Tensor y = numbers(ctx, {2, 8}, DType::kBF16);
    ops::linear(ctx, numbers(ctx, {2, 3}, DType::kBF16), numbers(ctx, {8, 3}, DType::kBF16),
                numbers(ctx, {8}, DType::kBF16), y);
    ctx.stream.synchronize();
    EXPECT_EQ(static_cast<float>(y.address<BFloat16>()[0]), 14.0f + 1.0f);
  });
}

TEST_F(CublasLt, NoMemoryForTheWorkspaceIsSaidAndLeavesNothing) {
  {
    ops::Context ctx = context();
    library_.workspace = std::size_t{4} << 30;
    EXPECT_THROW(product(ctx, 3, 4, 5), OutOfMemoryError);
    EXPECT_EQ(library_.products(), 0u);
  }
  expect_nothing_left();
}

TEST_F(CublasLt, WhereNoAlgorithmFitsTheShapeIsNamed) {
  ops::Context ctx = context();
  library_.has_algorithm = false;
  try {
    product(ctx, 3, 4, 5);
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_STREQ(error.what(),
                 "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED, multiplying (3, 5) "
                 "by (5, 4) in fp32 into fp32");
  }
  EXPECT_THROW(product(ctx, 3, 4, 5), CudaError);
  EXPECT_EQ(library_.queries().size(), 1u) << "the answer does not change";
}

std::string refusal_of(const std::vector<std::string>& names) {
  try {
    ops::load_cublaslt(names);
  } catch (const CudaError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CublasLtLibrary, SaysWhatWasTried) {
  const std::string message = refusal_of({"libnone.so.1", "/nowhere/libnone.so.1"});
  EXPECT_EQ(message.find("cuBLASLt, which multiplies matrices on a GPU, is not here: libnone.so.1"),
            0u)
      << message;
  EXPECT_NE(message.find("(tried libnone.so.1, /nowhere/libnone.so.1)"), std::string::npos)
      << message;
  EXPECT_EQ(refusal_of({"libm.so.6"}), "libm.so.6 has no function cublasLtGetVersion");
}

// The real descriptors, which need no GPU, take what they are given; algorithm and product are
// scripted.
TEST(CublasLtLibrary, ItsDescriptorsTakeWhatTheyAreGiven) {
  const std::vector<std::string> names = cuda_library_names("cublasLt", CUBLAS_VER_MAJOR);
  if (!DynamicLibrary(names).found()) GTEST_SKIP() << "cuBLASLt is not here";
  ops::CublasLt library = ops::load_cublaslt(names);
  EXPECT_EQ(library.get_version() / 10000, static_cast<std::size_t>(CUBLAS_VER_MAJOR));
  library.create = [](cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; };
  library.destroy = [](cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; };
  library.heuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t results[],
                         int* found) {
    *found = 1;
    results[0] = {};
    return CUBLAS_STATUS_SUCCESS;
  };
  library.matmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                      cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                      const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                      const cublasLtMatmulAlgo_t*, void*, std::size_t,
                      cudaStream_t) { return CUBLAS_STATUS_SUCCESS; };
  const auto engine = ops::make_cublaslt_matmul(library, kMostWorkspace, {.tf32 = true});
  ops::Context ctx;
  using enum DType;
  using enum ops::Epilogue;
  for (const DType dtype : {kF32, kBF16, kF16}) {
    engine->run(ctx, with_bias(some_call(dtype, dtype), dtype));
    engine->run(ctx, with_gelu(with_bias(some_call(dtype, dtype), dtype), kGelu));
    engine->run(ctx, with_gelu(some_call(dtype, dtype), kGeluBackward));
  }
  ops::MatmulCall with_sums = with_gelu(some_call(kF32, kF32), kGeluBackward);
  with_sums.bias_gradient = static_cast<float*>(with_sums.c);
  engine->run(ctx, with_sums);
}

}  // namespace
}  // namespace trireme
