#include "parallel/gradient_clip.h"

#include <algorithm>

#include "trireme/base/exact_sum.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/update.h"

namespace trireme::parallel {
namespace {

// The axes over which the parts of a parameter's gradient lie.
constexpr Axes kParts = Axis::kShard | Axis::kTensor;

}  // namespace

GradientClip::GradientClip(const Stage& stage, float value, float norm_of_each)
    : stage_(stage), value_(value), norm_(norm_of_each) {
  if (norm_ > 0.0f) parts_ = stage.grid().make({"clip", kParts, Purpose::kState});
}

void GradientClip::run(ops::Context& ctx) const {
  if (value_ > 0.0f) {
    for (const nn::FlatGroup* group : stage_.trained_groups()) {
      ops::clip_values(ctx, group->gradient_shard(), value_);
    }
  }
  if (parts_) clip_each(ctx);
}

void GradientClip::clip_each(ops::Context& ctx) const {
  const ProcessGrid& grid = stage_.grid();
  const int place = grid.index(kAllAxes);
  std::int64_t parameters = 0;
  for (const nn::FlatGroup* group : stage_.trained_groups()) {
    parameters += std::ssize(group->parameters());
  }
  const Tensor limbs = ctx.allocate({parameters * kExactLimbs}, DType::kI64, MemoryUse::kWorkspace);
  const Tensor sums = ctx.allocate({parameters}, DType::kF64, MemoryUse::kWorkspace);
  // Calls body(group, part, number) for each part here, with the parameter's number in the stage.
  const auto for_each_part = [&](const auto& body) {
    std::int64_t first = 0;
    for (const nn::FlatGroup* group : stage_.trained_groups()) {
      for (const nn::FlatGroup::Part& part : group->parts()) {
        const auto at = std::ranges::find(group->parameters(), part.parameter);
        body(*group, part, first + (at - group->parameters().begin()));
      }
      first += std::ssize(group->parameters());
    }
  };
  ops::fill(ctx, limbs, 0.0f);
  for_each_part([&](const nn::FlatGroup& group, const auto& part, std::int64_t number) {
    if (part.parameter->residence().copy(grid.shape(), place, kParts) != 0) return;
    ops::add_sum_of_squares(ctx, nn::FlatGroup::view(group.gradient_shard(), part),
                            group.sharding().memory().begin + part.at,
                            limbs.flat_range(number * kExactLimbs, (number + 1) * kExactLimbs));
  });
  parts_->all_reduce(ctx.stream, limbs, ReduceOp::kSum).wait_on(ctx.stream);
  ops::round_exact_sum(ctx, limbs, sums);
  for_each_part([&](const nn::FlatGroup& group, const auto& part, std::int64_t number) {
    ops::clip_to_norm(ctx, nn::FlatGroup::view(group.gradient_shard(), part),
                      sums.flat_range(number, number + 1), norm_);
  });
}

}  // namespace trireme::parallel
