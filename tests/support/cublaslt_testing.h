// Common parts of the tests of products by cuBLASLt: a scripted GPU and a scripted library.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/ops/matmul.h"

#include "support/fake_cublaslt.h"
#include "support/fake_cuda.h"

namespace trireme::testing {

inline constexpr std::size_t kMostWorkspace = std::size_t{1} << 20;

class CublasLt : public ::testing::Test {
 protected:
  CublasLt() {
    library_.enqueue = [this](cudaStream_t stream, std::function<void()> work) {
      cuda_->enqueue(Stream({DeviceKind::kCuda, 0}, stream, cuda_.get()), std::move(work));
    };
  }

  ops::Context context(const ops::ProductSettings& settings = {}) {
    return ops::make_cuda_context(
        cuda_, 0, ops::make_cublaslt_matmul(library_.table(), kMostWorkspace, settings));
  }

  // Returns a tensor of 1, 2, 3, ... that starts `skip` elements into its memory block.
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
    ops::matmul(ctx, numbers(ctx, {m, k}, dtype, skip_a), ops::Transpose::kNo,
                numbers(ctx, {k, n}, dtype, skip_b), ops::Transpose::kNo, 0.0f,
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

  // Makes each call of the library fail in turn while `run` runs in a new context.
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
          run(ctx);  // a second try must request again what failed
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

// A valid call: (16, 8) by (8, 8), with all operands at one address.
inline ops::MatmulCall some_call(DType dtype, DType c_dtype) {
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
inline ops::MatmulCall with_bias(ops::MatmulCall call, DType bias_dtype) {
  call.bias = call.a;
  call.bias_dtype = bias_dtype;
  return call;
}
inline ops::MatmulCall with_gelu(ops::MatmulCall call, ops::Epilogue epilogue) {
  call.epilogue = epilogue;
  call.auxiliary = call.c;
  return call;
}

}  // namespace trireme::testing
