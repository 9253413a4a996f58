#include <blis.h>
#include <fmt/format.h>

#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

class BlisMatmul : public MatmulEngine {
 public:
  BlisMatmul()
      : description_(fmt::format("{} ({})", blis_version(), bli_arch_string(bli_arch_query_id()))) {
  }

  void run(Context& ctx, const MatmulCall& call) override {
    TRIREME_CHECK(call.dtype == DType::kF32, "BLIS multiplies fp32 only");
    rntm_t runtime;  // the number of threads of this call alone, not BLIS's global one
    bli_rntm_init(&runtime);
    bli_rntm_set_num_threads(ctx.threads, &runtime);
    float one = 1.0f;
    float beta = call.accumulate ? 1.0f : 0.0f;
    auto* a = const_cast<float*>(static_cast<const float*>(call.a));
    auto* b = const_cast<float*>(static_cast<const float*>(call.b));
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, call.m, call.n, call.k, &one, a,
                 call.transpose_a ? 1 : call.k, call.transpose_a ? call.m : 1, b,
                 call.transpose_b ? 1 : call.n, call.transpose_b ? call.k : 1, &beta,
                 static_cast<float*>(call.c), call.n, 1, nullptr, &runtime);
  }

  std::string_view description(DType) const override { return description_; }

 private:
  std::string description_;
};

}  // namespace

std::string blis_version() {
  return fmt::format("BLIS {}", bli_info_get_version_str());
}

std::unique_ptr<MatmulEngine> make_blis_matmul() {
  return std::make_unique<BlisMatmul>();
}

}  // namespace trireme::ops
