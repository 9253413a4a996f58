#include "trireme/parallel/gradient_reducer.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/update.h"

namespace trireme::parallel {

GradientReducer::GradientReducer(ops::Context& ctx, const Stage& stage, DType travel)
    : ctx_(ctx), stage_(stage) {
  const bool rounds = travel != DType::kF32 && stage.grid().comm(kDataAxes).size() > 1;
  groups_.reserve(stage.groups().size());
  for (nn::FlatGroup* flat : stage.groups()) {
    int uses = 0;
    bool has_partial = false;
    for (const nn::Parameter* parameter : flat->parameters()) {
      uses += parameter->uses();
      has_partial = has_partial || parameter->spec().copies.partial;
    }
    groups_.push_back({flat, uses, has_partial, 0, {}});
    if (rounds) {
      groups_.back().rounded =
          allocate_carried({&stage.grid().comm(kDataAxes)}, *ctx.allocator, ctx.stream,
                           flat->gradients().shape(), travel, MemoryUse::kGradients);
    }
    by_flat_[flat] = &groups_.back();
  }
  // The data communicators of a replica may have different tables, and all holders of a parameter
  // must broadcast or none.
  const bool fixed = stage.grid().comm(kDataAxes).fixes_order_of_sums(ctx.device.kind);
  if (rounds || !stage.grid().comm(kModelAxes).agree(fixed)) find_copied();
}

// Neighbouring parameters of a group that the same ranks hold become one range.
void GradientReducer::find_copied() {
  for (const Group& group : groups_) {
    Communicator* before = nullptr;
    for (const nn::Parameter* parameter : group.flat->parameters()) {
      Communicator* holders = parameter->spec().copies.holders;
      const std::int64_t begin = parameter->offset_in_group();
      const std::int64_t end = begin + parameter->placement().local.elements();
      if (holders != nullptr && holders == before) {
        copied_.back().end = end;
      } else if (holders != nullptr) {
        copied_.push_back({group.flat, holders, begin, end});
      }
      before = holders;
    }
  }
}

void GradientReducer::begin_step(int micro_batches) {
  // A step that was given up may have left work.
  waiting_.clear();
  late_.clear();
  reducing_.clear();
  for (Group& group : groups_) {
    ops::fill(ctx_, group.flat->gradients(), 0.0f);
    group.missing = group.uses * micro_batches;
    group.partial.clear();
  }
}

void GradientReducer::contributed(const nn::Parameter& parameter) {
  Group& group = *by_flat_.at(&parameter.group());
  if (--group.missing == 0) {
    if (group.has_partial && ctx_.device.kind != DeviceKind::kCpu) {
      late_.push_back(&group);
    } else {
      start_partial(group);
      waiting_.push_back(&group);
    }
  }
  advance(false);
}

void GradientReducer::start_partial(Group& group) {
  for (const nn::Parameter* parameter : group.flat->parameters()) {
    const nn::Copies& copies = parameter->spec().copies;
    if (!copies.partial) continue;
    group.partial.push_back(
        copies.holders->all_reduce(ctx_.stream, parameter->gradient(), ReduceOp::kSum));
  }
}

void GradientReducer::advance(bool wait) {
  while (!waiting_.empty()) {
    Group& group = *waiting_.front();
    if (wait) {
      for (const Work& work : group.partial) work.wait_on(ctx_.stream);
    } else if (!std::all_of(group.partial.begin(), group.partial.end(),
                            [](const Work& work) { return work.done(); })) {
      return;
    }
    group.partial.clear();
    waiting_.pop_front();
    reducing_.push_back({reduce(group), &group});
  }
}

Work GradientReducer::reduce(const Group& group) {
  Communicator& data = stage_.grid().comm(kDataAxes);
  if (group.rounded.raw() == nullptr) {
    return data.all_reduce(ctx_.stream, group.flat->gradients(), ReduceOp::kSum);
  }
  ops::cast(ctx_, group.flat->gradients(), group.rounded);
  return data.all_reduce(ctx_.stream, group.rounded, ReduceOp::kRoundedSum);
}

void GradientReducer::finish_step() {
  for (const Group& group : groups_) {
    TRIREME_CHECK(group.missing == 0, fmt::format("{} still misses {} gradient contributions",
                                                  group.flat->name(), group.missing));
  }
  for (Group* group : late_) {
    start_partial(*group);
    waiting_.push_back(group);
  }
  late_.clear();
  advance(true);
  for (const Reduction& reduction : reducing_) {
    reduction.work.wait_on(ctx_.stream);
    const Group& group = *reduction.group;
    if (group.rounded.raw() != nullptr) ops::cast(ctx_, group.rounded, group.flat->gradients());
  }
  reducing_.clear();
  std::vector<Work> handed_on;
  for (const Copied& one : copied_) {
    handed_on.push_back(one.holders->broadcast(
        ctx_.stream, one.flat->gradients().flat_range(one.begin, one.end), 0));
  }
  for (const Work& work : handed_on) work.wait_on(ctx_.stream);
}

void sum_of_squared_gradients(ops::Context& ctx, const Stage& stage, const Tensor& sum) {
  ops::fill(ctx, sum, 0.0f);
  for (const nn::Parameter* parameter : stage.parameters()) {
    if (parameter->spec().copies.counted()) {
      ops::add_sum_of_squares(
          ctx, parameter->gradient().reshape({parameter->gradient().elements()}), sum);
    }
  }
  stage.grid().comm(kModelAxes).all_reduce(ctx.stream, sum, ReduceOp::kSum).wait_on(ctx.stream);
}

}  // namespace trireme::parallel
