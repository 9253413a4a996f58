#include "parallel/state_fold.h"

namespace trireme::parallel {

StateFold::StateFold(ops::Context& ctx, Stage& stage, const WorkSplit& work)
    : ctx_(ctx),
      states_(stage.states()),
      replicas_(stage.grid().comm(kDataAxes)),
      copies_(stage.grid().comm(Axis::kTensor)),
      runs_(work.runs()),
      reduces_each_(work.reduces_each()) {
  if (states_.empty()) return;
  states_.hold_proposals(ctx, runs_);
  if (runs_ > 1) sum_.emplace(ctx, states_.proposed().shape()[1], runs_);
  // Each tensor rank adds up in a communicator of its own.
  hands_on_ = !copies_.agree(replicas_.fixes_order_of_sums(ctx.device.kind));
}

void StateFold::connect() {
  if (!states_.empty()) add_up();
}

Tensor StateFold::add_up() {
  const Tensor& proposed = states_.proposed();
  const auto reduce = [this](const Tensor& x) {
    replicas_.all_reduce(ctx_.stream, x, ReduceOp::kSum).wait_on(ctx_.stream);
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
  if (hands_on_) copies_.broadcast(ctx_.stream, total, 0).wait_on(ctx_.stream);
  return total;
}

void StateFold::commit(int micro_batches) {
  if (states_.empty()) return;
  states_.commit(ctx_, add_up(), micro_batches);
  states_.discard(ctx_);
}

}  // namespace trireme::parallel
