#include "parallel/gradient_clip.h"

#include <vector>

#include "trireme/ops/lengths.h"

namespace trireme::parallel {

GradientClip::GradientClip(const Stage& stage, float value, float norm_of_each)
    : stage_(stage), value_(value), norm_(norm_of_each) {
  if (norm_ <= 0.0f) return;
  sums_.emplace(stage.grid(), "clip");
  for (const nn::FlatGroup* group : stage.trained_groups()) {
    for (const nn::Parameter* parameter : group->parameters()) {
      numbers_.emplace(parameter, std::ssize(numbers_));
    }
  }
}

void GradientClip::run(ops::Context& ctx) const {
  if (value_ > 0.0f) {
    for (const nn::FlatGroup* group : stage_.trained_groups()) {
      ops::clip_values(ctx, group->gradient_shard(), value_);
    }
  }
  if (sums_) clip_each(ctx);
}

void GradientClip::clip_each(ops::Context& ctx) const {
  std::vector<optim::ParameterSums::Part> parts;
  for (const nn::FlatGroup* group : stage_.trained_groups()) {
    for (const nn::FlatGroup::Part& part : group->parts()) {
      parts.push_back({part.parameter, nn::FlatGroup::view(group->gradient_shard(), part),
                       group->sharding().memory().begin + part.at, numbers_.at(part.parameter)});
    }
  }
  const Tensor sums = ctx.allocate({std::ssize(numbers_)}, DType::kF64, MemoryUse::kWorkspace);
  sums_->take_squares(ctx, parts, sums);
  for (const optim::ParameterSums::Part& part : parts) {
    ops::clip_to_norm(ctx, part.x, sums.flat_range(part.number, part.number + 1), norm_);
  }
}

}  // namespace trireme::parallel
