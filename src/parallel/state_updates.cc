#include "parallel/state_updates.h"

namespace trireme::parallel {

StateUpdates::StateUpdates(ops::Context& ctx, Stage& stage, const WorkSplit& work)
    : ctx_(ctx), states_(stage.states()), runs_(work.runs()), reduces_each_(work.reduces_each()) {
  if (states_.empty()) return;
  const ResidentGroup group = stage.residence_of_states();
  const ProcessGrid& grid = stage.grid();
  for (const Call& call : calls_of({&group, 1}, grid.shape(), work, {.fixed_order = false})) {
    (call.what == Collective::kBroadcast ? copies_ : replicas_) = &stage.comm(call.over);
  }
  states_.hold_proposals(ctx, runs_);
  if (runs_ > 1) sum_.emplace(ctx, states_.proposed().shape()[1], runs_);
  if (copies_ == nullptr) return;
  // Each tensor rank adds up in a communicator of its own.
  const bool fixed = replicas_ == nullptr || replicas_->fixes_order_of_sums(ctx.device.kind);
  hands_on_ = !copies_->agree(fixed);
}

void StateUpdates::connect() {
  if (!states_.empty()) add_up();
}

Tensor StateUpdates::add_up() {
  const Tensor& proposed = states_.proposed();
  const auto reduce = [this](const Tensor& x) {
    if (replicas_ != nullptr) {
      replicas_->all_reduce(ctx_.stream, x, ReduceOp::kSum).wait_on(ctx_.stream);
    }
  };
  if (reduces_each_) reduce(proposed);
  const auto term = [&](int run) {
    return proposed.rows(run, run + 1).reshape({proposed.shape()[1]});
  };
  if (sum_) {
    sum_->begin();
    for (int run = 0; run < runs_; ++run) sum_->add(ctx_, term(run));
  }
  const Tensor total = term(runs_ - 1);  // the last term has become the sum
  if (!reduces_each_) reduce(total);
  if (hands_on_) copies_->broadcast(ctx_.stream, total, 0).wait_on(ctx_.stream);
  return total;
}

void StateUpdates::commit(int micro_batches) {
  if (states_.empty()) return;
  states_.commit(ctx_, add_up(), micro_batches);
  states_.discard(ctx_);
}

}  // namespace trireme::parallel
