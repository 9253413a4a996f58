// Stands in for cuBLASLt on a GPU that does not exist.
#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

class DryGpuMatmul final : public MatmulEngine {
 public:
  void run(Context& ctx, const MatmulCall&) override {
    ctx.allocator->allocate(kCublasLtWorkspace, MemoryUse::kWorkspace, ctx.stream);
  }
  bool fuses(const MatmulCall& call) override { return cublaslt_may_fuse(call); }
  std::string_view description(DType) const override { return "cuBLASLt on a dry GPU"; }
};

}  // namespace

std::unique_ptr<MatmulEngine> make_dry_gpu_matmul() {
  return std::make_unique<DryGpuMatmul>();
}

// Rows of the auxiliary matrix must begin at multiples of 8 elements. cuBLASLt returns the gradient
// of a bias in the type of the result, and ours is fp32.
bool cublaslt_may_fuse(const MatmulCall& call) {
  if (call.bias != nullptr && call.bias_dtype != call.c_dtype) return false;
  if (call.bias_gradient != nullptr && call.c_dtype != DType::kF32) return false;
  if (call.addend != nullptr && call.epilogue != Epilogue::kNone) return false;
  return call.epilogue == Epilogue::kNone || call.n % 8 == 0;
}

}  // namespace trireme::ops
