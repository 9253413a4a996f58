// Products of e4m3 on a CPU, which has no instructions for them.
#include <array>

#include "trireme/ops/elementwise.h"

#include "ops/cpu/parallel.h"
#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

// The values of all codes.
const std::array<float, 256>& values_of_codes() {
  static const auto table = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      E4M3 code;
      code.bits = static_cast<std::uint8_t>(i);
      values[i] = static_cast<float>(code);
    }
    return values;
  }();
  return table;
}

// Codes (rows, k) times their scales. bf16 holds them exactly, since scales are powers of two.
Tensor values_in_bf16(Context& ctx, const void* codes, const OperandScales& of, std::int64_t rows,
                      std::int64_t k) {
  const Tensor values = ctx.allocate({rows, k}, DType::kBF16, MemoryUse::kWorkspace);
  const auto* from = static_cast<const std::uint8_t*>(codes);
  const std::int64_t stride = BlockScaled::shape_of_scales(of.blocks, rows, k)[1];
  const std::array<float, 256>& table = values_of_codes();
  cpu::parallel_ranges(ctx, rows, cpu::row_grain(k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t block = 0; block < k / kScaledSide; ++block) {
        const float scale = of.blocks == ScaledBlocks::kRows
                                ? of.scales[block * stride + row]
                                : of.scales[row / kScaledSide * stride + block];
        const std::int64_t first = row * k + block * kScaledSide;
        for (std::int64_t i = first; i < first + kScaledSide; ++i) {
          values.data<BFloat16>()[i] = BFloat16(table[from[i]] * scale);
        }
      }
    }
  });
  return values;
}

class ScaledMatmul final : public MatmulEngine {
 public:
  explicit ScaledMatmul(std::shared_ptr<MatmulEngine> bf16)
      : bf16_(std::move(bf16)),
        description_(std::string(bf16_->description(DType::kBF16)) + ", e4m3 converted to bf16") {}

  void run(Context& ctx, const MatmulCall& call) override {
    const Tensor a = values_in_bf16(ctx, call.a, call.a_scales, call.m, call.k);
    const Tensor b = values_in_bf16(ctx, call.b, call.b_scales, call.n, call.k);
    MatmulCall plain = call;
    plain.dtype = DType::kBF16;
    plain.a = a.raw();
    plain.b = b.raw();
    plain.a_scales = plain.b_scales = {};
    bf16_->run(ctx, plain);
  }
  bool fuses(const MatmulCall& call) override {
    return call.bias == nullptr && call.epilogue == Epilogue::kNone;
  }
  std::string_view description(DType) const override { return description_; }
  bool is_native(DType) const override { return false; }

 private:
  std::shared_ptr<MatmulEngine> bf16_;
  std::string description_;
};

}  // namespace

std::unique_ptr<MatmulEngine> make_scaled_matmul(std::shared_ptr<MatmulEngine> bf16) {
  return std::make_unique<ScaledMatmul>(std::move(bf16));
}

}  // namespace trireme::ops
