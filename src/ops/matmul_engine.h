// The libraries behind ops::matmul.
#pragma once

#include <memory>
#include <string>

#include "trireme/ops/context.h"
#include "trireme/tensor/cuda.h"

namespace trireme::ops {

// What becomes of a product and its bias on the way to c.
enum class Epilogue {
  kNone,
  kGelu,          // `auxiliary` receives it, c its GELU
  kGeluBackward,  // c = it * gelu'(auxiliary)
};

// c (m, n) = op(a) op(b), or c += with accumulate; row-major and contiguous. a and b are of
// `dtype`, c of `c_dtype`. No extent is 0. What follows `accumulate` excludes it and is asked for
// only where the engine fuses it.
struct MatmulCall {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  DType dtype = DType::kF32;
  DType c_dtype = DType::kF32;
  bool accumulate = false;
  const void* bias = nullptr;  // (n) of bias_dtype, added to every row
  DType bias_dtype = DType::kF32;
  Epilogue epilogue = Epilogue::kNone;
  void* auxiliary = nullptr;       // (m, n) of c_dtype
  float* bias_gradient = nullptr;  // (n), with kGeluBackward: receives c's column sums
};

// Serves one call at a time.
class MatmulEngine {
 public:
  virtual ~MatmulEngine() = default;
  virtual void run(Context& ctx, const MatmulCall& call) = 0;
  // Whether all that this call asks for beyond the product can be done on the way.
  virtual bool fuses(const MatmulCall&) { return false; }
  // "oneDNN 2.6.3 (AVX-512)": for a person, of products of this type.
  virtual std::string_view description(DType dtype) const = 0;
  // Whether such products run on instructions of their own type.
  virtual bool is_native(DType) const { return true; }
};

// oneDNN: fp32 everywhere, bf16 where the processor has instructions for it.
std::unique_ptr<MatmulEngine> make_onednn_matmul();
bool onednn_has_native_bf16();
// BLIS, fp32 only.
std::unique_ptr<MatmulEngine> make_blis_matmul();
// bf16 and fp16 through fp32: converts blocks of the operands and gives them to `fp32`, which it
// shares.
std::unique_ptr<MatmulEngine> make_converting_matmul(std::shared_ptr<MatmulEngine> fp32);

// The best for this processor, by type (policy in the .cc). TRIREME_MATMUL=onednn|blis in the
// environment asks for one library; ConfigError for any other value.
std::shared_ptr<MatmulEngine> make_cpu_matmul_engine();

// cuBLASLt on the calling thread's device, whose properties these are: fp32, bf16 and fp16, sums in
// fp32. tf32: fp32 operands are rounded to TF32, for its speed. Opens the library; CudaError where
// it is not here, or where this build has no CUDA.
std::unique_ptr<MatmulEngine> make_cublaslt_matmul(const cuda::DeviceProperties& device, bool tf32);
// What the public namesake returns, with this engine.
Context make_cuda_context(std::shared_ptr<cuda::Runtime> runtime, int device,
                          std::shared_ptr<MatmulEngine> matmul);

// "BLIS 0.9.0" and the like: what is linked, whether or not this processor uses it.
std::string onednn_version();
std::string blis_version();

}  // namespace trireme::ops
