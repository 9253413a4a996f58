#include "trireme/optim/parameter_sums.h"

#include <utility>

#include "trireme/base/exact_sum.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"

namespace trireme::optim {
namespace {

// The axes over which the parts of a stage's parameters lie.
constexpr Axes kParts = Axis::kShard | Axis::kTensor;

}  // namespace

ParameterSums::ParameterSums(const ProcessGrid& grid, std::string name)
    : grid_(grid.shape()),
      place_(grid.index(kAllAxes)),
      comm_(grid.make({std::move(name), kParts, Purpose::kState})) {}

bool ParameterSums::counts(const nn::Parameter& parameter) const {
  return parameter.residence().copy(grid_, place_, kParts) == 0;
}

void ParameterSums::add_up(ops::Context& ctx, const Tensor& sums) const {
  comm_->all_reduce(ctx.stream, sums, ReduceOp::kSum).wait_on(ctx.stream);
}

void ParameterSums::take_squares(ops::Context& ctx, std::span<const Part> parts,
                                 const Tensor& sums) const {
  const Tensor limbs =
      ctx.allocate({sums.elements() * kExactLimbs}, DType::kI64, MemoryUse::kWorkspace);
  ops::fill(ctx, limbs, 0.0f);
  for (const Part& part : parts) {
    if (!counts(*part.parameter)) continue;
    const std::int64_t begin = part.number * kExactLimbs;
    ops::add_sum_of_squares(ctx, part.x, part.first, limbs.flat_range(begin, begin + kExactLimbs));
  }
  add_up(ctx, limbs);
  ops::round_exact_sum(ctx, limbs, sums);
}

}  // namespace trireme::optim
