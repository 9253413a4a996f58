#include "trireme/parallel/gradient_reducer.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"

namespace trireme::parallel {

using Phase = nn::FlatGroup::Phase;

GradientReducer::GradientReducer(ops::Context& ctx, const Stage& stage,
                                 const nn::ReductionOptions& options)
    : ctx_(ctx), defers_(ctx.device.kind != DeviceKind::kCpu || stage.collective()) {
  groups_.reserve(stage.groups().size());
  bool equal = true;
  for (nn::FlatGroup* flat : stage.groups()) {
    flat->plan_reduction(ctx, options);
    equal = equal && flat->keeps_copies_equal(ctx);
    groups_.push_back({flat});
    by_flat_[flat] = &groups_.back();
  }
  // The communicators of a replica's ranks may have different tables, and all holders of a
  // parameter must broadcast or none.
  hands_on_ = !stage.grid().comm(kModelAxes).agree(equal);
}

void GradientReducer::begin_step(int micro_batches) {
  // A step that was given up may have left work.
  waiting_.clear();
  late_.clear();
  reducing_.clear();
  for (Group& group : groups_) {
    ops::fill(ctx_, group.flat->gradients(), 0.0f);
    group.missing = group.flat->uses() * micro_batches;
    group.works.clear();
  }
}

void GradientReducer::contributed(const nn::Parameter& parameter) {
  Group& group = *by_flat_.at(&parameter.group());
  if (--group.missing == 0) {
    if (group.flat->reduces_in_steps() && defers_) {
      late_.push_back(&group);
    } else {
      start(group, Phase::kPartial);
    }
  }
  advance(false);
}

void GradientReducer::start(Group& group, Phase phase) {
  group.works = group.flat->start_reduction(ctx_, phase);
  if (phase == group.flat->last_phase()) {
    reducing_.push_back(&group);
  } else {
    waiting_[phase].push_back(&group);
  }
}

void GradientReducer::advance(bool wait) {
  const auto move_on = [&](Phase from, Phase to) {
    std::deque<Group*>& groups = waiting_[from];
    while (!groups.empty()) {
      Group& group = *groups.front();
      if (wait) {
        for (const Work& work : group.works) work.wait_on(ctx_.stream);
      } else if (!std::ranges::all_of(group.works, [](const Work& one) { return one.done(); })) {
        return;
      }
      groups.pop_front();
      start(group, to);
    }
  };
  move_on(Phase::kPartial, Phase::kSum);
  move_on(Phase::kSum, Phase::kCopies);
}

void GradientReducer::finish_step() {
  for (const Group& group : groups_) {
    TRIREME_CHECK(group.missing == 0, fmt::format("{} still misses {} gradient contributions",
                                                  group.flat->name(), group.missing));
  }
  for (Group* group : late_) start(*group, Phase::kPartial);
  late_.clear();
  advance(true);
  for (Group* group : reducing_) {
    for (const Work& work : group->works) work.wait_on(ctx_.stream);
    group->flat->finish_reduction(ctx_);
    group->works.clear();
  }
  reducing_.clear();
  if (!hands_on_) return;
  std::vector<Work> handed_on;
  for (const Group& group : groups_) {
    std::ranges::move(group.flat->hand_on_gradients(ctx_), std::back_inserter(handed_on));
  }
  for (const Work& work : handed_on) work.wait_on(ctx_.stream);
}

void sum_of_squared_gradients(ops::Context& ctx, const Stage& stage, const Tensor& sum) {
  ops::fill(ctx, sum, 0.0f);
  Communicator* sharded = nullptr;  // all groups are sharded over the same ranks
  for (const nn::FlatGroup* group : stage.groups()) {
    group->add_sum_of_squares(ctx, sum);
    sharded = group->ranks().sharded;
  }
  stage.grid().comm(kModelAxes).all_reduce(ctx.stream, sum, ReduceOp::kSum).wait_on(ctx.stream);
  if (sharded == nullptr || sharded->size() == 1) return;
  sharded->all_reduce(ctx.stream, sum, ReduceOp::kSum).wait_on(ctx.stream);
}

}  // namespace trireme::parallel
