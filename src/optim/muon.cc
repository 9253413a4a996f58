#include <algorithm>
#include <cmath>

#include "trireme/base/exact_sum.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/matmul.h"
#include "trireme/ops/update.h"

#include "optim/rules.h"

namespace trireme::optim {
namespace {

// The coefficients and the number of steps of Jordan et al., "Muon: an optimizer for hidden layers
// in neural networks", 2024: a step maps each singular value x to a x + b x^3 + c x^5.
constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f, kEpsilon = 1e-7f;
constexpr int kSteps = 5;

float scale_of(MatrixScale scale, std::int64_t rows, std::int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  if (scale == MatrixScale::kOriginal) return static_cast<float>(std::sqrt(std::max(1.0, r / c)));
  return static_cast<float>(0.2 * std::sqrt(std::max(r, c)));
}

// The matrix in fp32, or a copy of it.
Tensor in_fp32(ops::Context& ctx, const Tensor& x) {
  if (x.dtype() == DType::kF32) return x;
  const Tensor made = ctx.allocate(x.shape(), DType::kF32, MemoryUse::kWorkspace);
  ops::cast(ctx, x, made);
  return made;
}

class MuonRule : public UpdateRule, public MatrixWork {
 public:
  explicit MuonRule(const RuleSettings& settings) : settings_(settings) {}

  std::vector<std::string> states(const Shape& /*global*/) const override { return {"momentum"}; }
  const MatrixWork* matrices() const override { return this; }
  DType type() const override { return settings_.matrices; }

  void begin(ops::Context& ctx, const FlatShard& shard, const States& states,
             const Tensor& direction) const override {
    ops::average_gradient(ctx, {.momentum = settings_.momentum, .nesterov = settings_.nesterov},
                          shard.gradient, states[0].second, direction);
  }

  // Newton-Schulz: the singular values of the result are about 1. All sums are in fp32.
  void whole(ops::Context& ctx, const Tensor& matrix) const override {
    const std::int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
    const bool wide = rows <= columns;
    const std::int64_t least = std::min(rows, columns);
    const auto make = [&](const Shape& shape, DType dtype) {
      return ctx.allocate(shape, dtype, MemoryUse::kWorkspace);
    };
    divide_by_norm(ctx, matrix);
    const Tensor square = make({least, least}, matrix.dtype());
    const Tensor polynomial = make({least, least}, DType::kF32);
    const Tensor next = make(matrix.shape(), DType::kF32);
    for (int step = 1; step <= kSteps; ++step) {
      // The smaller of x xᵀ and xᵀ x.
      ops::matmul(ctx, matrix, wide ? Transpose::kNo : Transpose::kYes, matrix,
                  wide ? Transpose::kYes : Transpose::kNo, 0.0f, square);
      ops::matmul(ctx, square, Transpose::kNo, square, Transpose::kNo, 0.0f, polynomial);
      ops::scale(ctx, polynomial, kC);
      ops::add_scaled(ctx, square, kB, polynomial);
      if (square.dtype() != DType::kF32) ops::cast(ctx, polynomial, square);
      const Tensor& factor = square.dtype() == DType::kF32 ? polynomial : square;
      ops::cast(ctx, matrix, next);
      ops::scale(ctx, next, kA);
      ops::matmul(ctx, wide ? factor : matrix, Transpose::kNo, wide ? matrix : factor,
                  Transpose::kNo, 1.0f, next);
      if (step == kSteps) ops::scale(ctx, next, scale_of(settings_.scale, rows, columns));
      ops::cast(ctx, next, matrix);
    }
  }

  double cost(std::int64_t rows, std::int64_t columns) const override {
    const auto least = static_cast<double>(std::min(rows, columns));
    const auto most = static_cast<double>(std::max(rows, columns));
    return kSteps * least * least * (4.0 * most + 2.0 * least);
  }

  void update(ops::Context& ctx, const FlatShard& shard, const States& /*states*/) const override {
    ops::step_along(ctx, {.weight_decay = settings_.decoupled(shard), .rate = settings_.rate},
                    shard.master, shard.gradient, shard.weights);
  }

 private:
  using Transpose = ops::Transpose;

  static void divide_by_norm(ops::Context& ctx, const Tensor& matrix) {
    const Tensor limbs = ctx.allocate({kExactLimbs}, DType::kI64, MemoryUse::kWorkspace);
    const Tensor sum = ctx.allocate({1}, DType::kF64, MemoryUse::kWorkspace);
    const Tensor x = in_fp32(ctx, matrix);
    ops::fill(ctx, limbs, 0.0f);
    ops::add_sum_of_squares(ctx, x, 0, limbs);
    ops::round_exact_sum(ctx, limbs, sum);
    ops::divide_by_root(ctx, x, sum, kEpsilon, matrix);
  }

  RuleSettings settings_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_muon(const RuleSettings& settings) {
  return std::make_unique<MuonRule>(settings);
}

}  // namespace trireme::optim
