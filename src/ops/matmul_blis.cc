#include <algorithm>

#include <blis.h>
#include <fmt/format.h>

#include "ops/cpu/parallel.h"
#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

// Equal parts of about `size`. They depend on the extent alone.
struct Blocks {
  std::int64_t count, size;
};
Blocks blocks_of(std::int64_t extent, std::int64_t size) {
  const std::int64_t count = std::max<std::int64_t>(1, (extent + size / 2) / size);
  return {count, ((extent + count - 1) / count + 15) / 16 * 16};
}

// Our threads divide the blocks of the result, and each block is one call of BLIS on one thread.
// BLIS's own threads spin at many barriers within a product, which cost a factor of 20 and more
// when other threads needed the cores. This way the bits also do not depend on the number of
// threads.
class BlisMatmul : public MatmulEngine {
 public:
  BlisMatmul()
      : description_(fmt::format("{} ({})", blis_version(), bli_arch_string(bli_arch_query_id()))) {
  }

  void run(Context& ctx, const MatmulCall& call) override {
    TRIREME_CHECK(call.dtype == DType::kF32, "BLIS multiplies fp32 only");
    const Blocks rows = blocks_of(call.m, 512);
    const Blocks columns = blocks_of(call.n, 384);
    cpu::parallel_for(ctx, rows.count * columns.count, [&](std::int64_t block) {
      const std::int64_t i = block / columns.count * rows.size;
      const std::int64_t j = block % columns.count * columns.size;
      if (i < call.m && j < call.n) {
        multiply(call, i, std::min(rows.size, call.m - i), j, std::min(columns.size, call.n - j));
      }
    });
  }

  std::string_view description(DType) const override { return description_; }

 private:
  // Rows i to i + m and columns j to j + n of c, on the calling thread.
  static void multiply(const MatmulCall& call, std::int64_t i, std::int64_t m, std::int64_t j,
                       std::int64_t n) {
    rntm_t runtime;  // for the threads of this call, not BLIS's global setting
    bli_rntm_init(&runtime);
    bli_rntm_set_num_threads(1, &runtime);
    float one = 1.0f;
    float beta = call.accumulate ? 1.0f : 0.0f;
    const std::int64_t a_row = call.transpose_a ? 1 : call.k;
    const std::int64_t a_column = call.transpose_a ? call.m : 1;
    const std::int64_t b_row = call.transpose_b ? 1 : call.n;
    const std::int64_t b_column = call.transpose_b ? call.k : 1;
    auto* a = const_cast<float*>(static_cast<const float*>(call.a)) + i * a_row;
    auto* b = const_cast<float*>(static_cast<const float*>(call.b)) + j * b_column;
    auto* c = static_cast<float*>(call.c) + i * call.n + j;
    bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, call.k, &one, a, a_row, a_column, b,
                 b_row, b_column, &beta, c, call.n, 1, nullptr, &runtime);
  }

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
