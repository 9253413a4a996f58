// What computes ops::matmul: libraries, and our own kernels.
#pragma once

#include <memory>
#include <string>

#include "trireme/ops/block_scaled.h"
#include "trireme/ops/context.h"
#include "trireme/ops/product_algorithms.h"
#include "trireme/tensor/cuda.h"

namespace trireme::ops {

// The scales of an operand in e4m3 (trireme/ops/block_scaled.h).
struct OperandScales {
  const float* scales = nullptr;
  ScaledBlocks blocks = ScaledBlocks::kRows;
};

// c (m, n) = op(a) op(b), or c += op(a) op(b) with `accumulate`; row-major and contiguous. a and b
// are of `dtype`, c is of `c_dtype`. No extent is 0. The members from `bias` to `bias_gradient`
// exclude `accumulate`, and are set only in calls that fuses() accepts. With e4m3 a is (m, k), b is
// (n, k), both have scales, and extents are multiples of kScaledSide.
struct MatmulCall {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  DType dtype = DType::kF32;
  DType c_dtype = DType::kF32;
  bool accumulate = false;
  const void* addend = nullptr;  // (m, n) of c_dtype, added to the product; not with an epilogue
  const void* bias = nullptr;    // (n) of bias_dtype, added to every row
  DType bias_dtype = DType::kF32;
  Epilogue epilogue = Epilogue::kNone;
  void* auxiliary = nullptr;       // (m, n) of c_dtype
  float* bias_gradient = nullptr;  // (n), with kGeluBackward: c's column sums are written to it
  OperandScales a_scales = {}, b_scales = {};

  double multiplications() const {
    return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// A call of such a product. `operands`: addresses of a, b, what is added, c, the bias or its
// gradient, and auxiliary; those that the product has no use for are left out.
MatmulCall call_of(const Product& product, const std::array<void*, 6>& operands);

// Serves one call at a time.
class MatmulEngine {
 public:
  virtual ~MatmulEngine() = default;
  virtual void run(Context& ctx, const MatmulCall& call) = 0;
  // Whether the engine can fuse everything that this call asks for beyond the product. For e4m3:
  // whether it has that product at all.
  virtual bool fuses(const MatmulCall&) { return false; }
  // Null where products have no algorithms to choose among.
  virtual ProductAlgorithms* algorithms() { return nullptr; }
  // Tells the user what computes products of this type, "oneDNN 2.6.3 (AVX-512)".
  virtual std::string_view description(DType dtype) const = 0;
  // Whether products of this type run on instructions of that type.
  virtual bool is_native(DType) const { return true; }
};

// oneDNN's matmul primitives: fp32 on every processor, bf16 on those that have instructions for it.
std::unique_ptr<MatmulEngine> make_onednn_primitives();
// oneDNN's sgemm, which copies both operands into panels; fp32 only.
std::unique_ptr<MatmulEngine> make_onednn_sgemm();
bool onednn_has_native_bf16();
// Our own kernels, fp32 only. One thread computes fewer than kOneThread multiplications.
inline constexpr double kOneThread = 4e6;
std::unique_ptr<MatmulEngine> make_own_matmul();
// Computes bf16 and fp16 in fp32: converts blocks of the operands and gives them to `fp32`, which
// it shares with its other users.
std::unique_ptr<MatmulEngine> make_converting_matmul(std::shared_ptr<MatmulEngine> fp32);

// Computes e4m3 in bf16: operands are multiplied by their scales, which bf16 holds exactly, and
// given to `bf16`.
std::unique_ptr<MatmulEngine> make_scaled_matmul(std::shared_ptr<MatmulEngine> bf16);

// The best engine of this processor for each type (policy in the .cc). TRIREME_MATMUL in the
// environment asks for one: onednn, onednn-primitives and onednn-sgemm (for comparisons) or own.
// Throws ConfigError for any other value.
std::shared_ptr<MatmulEngine> make_cpu_matmul_engine();

// The most workspace of a product by cuBLASLt on a GPU of compute capability 9 or newer: what
// NVIDIA recommends.
inline constexpr std::size_t kCublasLtWorkspace = std::size_t{32} << 20;
// Whether cuBLASLt can fuse what the call asks for, as far as that does not depend on the GPU. In
// cuBLASLt a bias and its gradient have the result's type, but our sums are fp32.
bool cublaslt_may_fuse(const MatmulCall& call);

// cuBLASLt on the calling thread's device; `device` is that device's properties. fp32, bf16 and
// fp16, with sums in fp32. tf32: fp32 operands are rounded to TF32, for its speed. Opens the
// library. Throws CudaError if this machine lacks the library or this build has no CUDA.
std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const cuda::DeviceProperties& device,
                                                   const GpuSettings& settings);
// Does what the public function of the same name does, but with this matmul engine and no attention
// engine. Does not set the current device.
Context make_cuda_context(std::shared_ptr<cuda::Runtime> runtime, int device,
                          std::shared_ptr<MatmulEngine> matmul);

// Multiplies nothing. It asks for the largest workspace that cuBLASLt may take and fuses what
// cuBLASLt can.
std::unique_ptr<MatmulEngine> make_dry_gpu_matmul();

// The linked version, such as "oneDNN 2.6.3", whether or not this processor uses it.
std::string onednn_version();
// The same with what it uses of this processor: "oneDNN 2.6.3 (AVX-512, bf16)".
std::string onednn_description();

}  // namespace trireme::ops
