#include "trireme/nn/state.h"

#include <cmath>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/update.h"

namespace trireme::nn {

void State::propose(ops::Context& ctx, const StepPlace& place, std::int64_t row, const Tensor& x,
                    float factor) const {
  TRIREME_CHECK(proposed_.defined(), "a stage that does not train proposes " + name());
  TRIREME_CHECK(0 <= place.number && place.number < place.count,
                "a micro-batch that is not of the step proposes " + name());
  const double weight = static_cast<double>(spec_.momentum) *
                        std::pow(1.0 - static_cast<double>(spec_.momentum),
                                 static_cast<double>(place.count - 1 - place.number));
  const Tensor to = proposed_.rows(row, row + 1);
  ops::add_scaled(ctx, x, static_cast<float>(weight) * factor, to);
}

State& StateSet::add(StateSpec spec) {
  TRIREME_CHECK(static_cast<std::int64_t>(spec.initial.size()) == spec.shape[0],
                "an initial value for each row of " + spec.name);
  return *states_.emplace_back(std::make_unique<State>(std::move(spec)));
}

StageStates::StageStates(ops::Context& ctx, std::vector<State*> states, bool trains)
    : states_(std::move(states)) {
  std::int64_t elements = 0;
  for (const State* state : states_) elements += state->spec().shape.elements();
  if (elements == 0) return;
  const Tensor values = ctx.allocate({elements}, DType::kF32, MemoryUse::kParameters);
  if (trains) {
    proposed_ = ctx.allocate({elements}, DType::kF32, MemoryUse::kGradients);
    ops::fill(ctx, proposed_, 0.0f);
  }
  std::int64_t at = 0;
  for (State* state : states_) {
    const Shape& shape = state->spec().shape;
    const std::int64_t end = at + shape.elements();
    state->value_ = values.flat_range(at, end).reshape(shape);
    if (trains) state->proposed_ = proposed_.flat_range(at, end).reshape(shape);
    for (std::int64_t row = 0; row < shape[0]; ++row) {
      ops::fill(ctx, state->value_.rows(row, row + 1),
                state->spec().initial[static_cast<std::size_t>(row)]);
    }
    at = end;
  }
}

void StageStates::commit(ops::Context& ctx, Communicator& replicas, int micro_batches) {
  if (empty()) return;
  TRIREME_CHECK(proposed_.defined(), "a stage that does not train commits its states");
  replicas.all_reduce(ctx.stream, proposed_, ReduceOp::kSum).wait_on(ctx.stream);
  for (State* state : states_) {
    const double keep = std::pow(1.0 - static_cast<double>(state->spec_.momentum),
                                 static_cast<double>(micro_batches));
    ops::commit_state(ctx, static_cast<float>(keep), state->proposed_, state->value_);
  }
}

void StageStates::discard(ops::Context& ctx) {
  if (proposed_.defined()) ops::fill(ctx, proposed_, 0.0f);
}

}  // namespace trireme::nn
