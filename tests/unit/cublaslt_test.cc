// Matrix products by cuBLASLt, on a GPU and a library that are scripted. That the numbers are right
// for every transposition, type and shape is for ops_matmul_test.cc, which ops_emulated_test runs
// on the same scripted library; here is what numbers do not show.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/dynamic_library.h"
#include "trireme/ops/matmul.h"

#include "support/fake_cublaslt.h"
#include "support/fake_cuda.h"

namespace trireme {
namespace {

using ops::Transpose;
using testing::FakeCublasLt;
using testing::FakeCuda;

constexpr std::size_t kMostWorkspace = std::size_t{1} << 20;

class CublasLt : public ::testing::Test {
 protected:
  CublasLt() {
    library_.enqueue = [this](cudaStream_t stream, std::function<void()> work) {
      cuda_->enqueue(Stream({DeviceKind::kCuda, 0}, stream, cuda_.get()), std::move(work));
    };
  }

  ops::Context context(bool tf32 = false) {
    return ops::make_cuda_context(
        cuda_, 0, ops::make_cublaslt_matmul(library_.table(), kMostWorkspace, tf32));
  }

  // 1, 2, 3, ..., `skip` elements into a block.
  static Tensor numbers(ops::Context& ctx, const Shape& shape, DType dtype, std::int64_t skip = 0) {
    const std::int64_t elements = shape.elements();
    const Tensor block = ctx.allocate({skip + elements}, dtype);
    const Tensor x = block.rows(skip, skip + elements).reshape(shape);
    for (std::int64_t i = 0; i < elements; ++i) {  // the fake's device memory is the host's
      const auto value = static_cast<float>(i + 1);
      if (dtype == DType::kF32) {
        x.address<float>()[i] = value;
      } else if (dtype == DType::kBF16) {
        x.address<BFloat16>()[i] = BFloat16(value);
      } else {
        x.address<Half>()[i] = Half(value);
      }
    }
    return x;
  }

  void product(ops::Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k,
               DType dtype = DType::kF32, std::int64_t skip_a = 0, std::int64_t skip_b = 0,
               std::int64_t skip_c = 0) {
    ops::matmul(ctx, numbers(ctx, {m, k}, dtype, skip_a), Transpose::kNo,
                numbers(ctx, {k, n}, dtype, skip_b), Transpose::kNo, 0.0f,
                numbers(ctx, {m, n}, DType::kF32, skip_c));
    ctx.stream.synchronize();
  }

  void expect_nothing_left() {
    cuda_->run_all();
    EXPECT_EQ(library_.alive(), 0u);
    EXPECT_EQ(cuda_->device_blocks(), 0u);
    EXPECT_EQ(cuda_->streams(), 0u);
    EXPECT_TRUE(cuda_->faults().empty()) << cuda_->faults().front();
  }

  // Each call of the library fails in turn while `run` is done in a new context.
  void expect_errors_of_every_call(const std::string& what,
                                   const std::function<void(ops::Context&)>& run) {
    std::vector<std::string> messages;
    bool succeeded = false;
    for (std::size_t n = 1; !succeeded; ++n) {
      ASSERT_LT(n, 100u);
      library_.fail_call(n);
      try {
        ops::Context ctx = context();
        try {
          run(ctx);
          succeeded = true;
        } catch (const CudaError&) {
          run(ctx);  // what failed once is asked for again
          throw;
        }
      } catch (const CudaError& error) {
        messages.emplace_back(error.what());
      }
      expect_nothing_left();
    }
    library_.fail_call(0);
    const std::string suffix =
        ": CUBLAS_STATUS_INTERNAL_ERROR, multiplying (2, 3) by (8, 3)^T in bf16 into bf16 " + what;
    ASSERT_GE(messages.size(), 15u);
    EXPECT_EQ(messages.front(), "cublasLtCreate: CUBLAS_STATUS_INTERNAL_ERROR");
    EXPECT_EQ(messages.back(), "cublasLtMatmul" + suffix);
    for (std::size_t i = 1; i < messages.size(); ++i) {
      EXPECT_EQ(messages[i].find(suffix), messages[i].size() - suffix.size()) << messages[i];
      EXPECT_EQ(messages[i].rfind("cublasLtM", 0), 0u) << messages[i];
    }
  }

  FakeCublasLt library_;
  std::shared_ptr<FakeCuda> cuda_ = std::make_shared<FakeCuda>();
};

TEST_F(CublasLt, QueuesTheProductWithItsBiasOnTheContextsStream) {
  library_.workspace = 1000;
  {
    ops::Context ctx = context();
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
    const auto workspace = static_cast<std::size_t>(MemoryUse::kWorkspace);
    EXPECT_GE(ctx.allocator->stats().peak[workspace], sizeof(ops::StepState) + 1000);
    EXPECT_LT(ctx.allocator->stats().live[workspace], 1000u);
  }
  expect_nothing_left();
}

// A call that could be made: (16, 8) by (8, 8), all operands in one place.
ops::MatmulCall some_call(DType dtype, DType c_dtype) {
  static float numbers[128];
  return {.m = 16,
          .n = 8,
          .k = 8,
          .a = numbers,
          .b = numbers,
          .c = numbers,
          .dtype = dtype,
          .c_dtype = c_dtype};
}
ops::MatmulCall with_bias(ops::MatmulCall call, DType bias_dtype) {
  call.bias = call.a;
  call.bias_dtype = bias_dtype;
  return call;
}
ops::MatmulCall with_gelu(ops::MatmulCall call, ops::Epilogue epilogue) {
  call.epilogue = epilogue;
  call.auxiliary = call.c;
  return call;
}

TEST_F(CublasLt, FusesABiasOfTheResultsTypeAlone) {
  const auto engine = ops::make_cublaslt_matmul(library_.table(), 0, false);
  using enum DType;
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kBF16, kBF16), kBF16)));
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kBF16, kF32), kF32)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kBF16, kBF16), kF32)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kBF16, kF32), kBF16)));
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kF16, kF16), kF16)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kF16, kF16), kBF16)));
}

TEST_F(CublasLt, GeluIsAnEpilogueWithWhatItNeeds) {
  const auto engine = ops::make_cublaslt_matmul(library_.table(), 0, false);
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
    const auto engine = ops::make_cublaslt_matmul(library_.table(), 0, false);
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
  ops::Context ctx = context(true);
  product(ctx, 3, 4, 5, DType::kF32);
  EXPECT_EQ(library_.queries().back().operation.compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  product(ctx, 3, 4, 5, DType::kBF16);
  EXPECT_EQ(library_.queries().back().operation.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(ops::matmul_description(ctx, DType::kF32), "cuBLASLt 13.0.2 (TF32)");
  EXPECT_EQ(ops::matmul_description(ctx, DType::kBF16), "cuBLASLt 13.0.2");
  EXPECT_EQ(ops::matmul_description(context(), DType::kF32), "cuBLASLt 13.0.2");
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
  const auto engine = ops::make_cublaslt_matmul(library, kMostWorkspace, true);
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
