#include "trireme/nn/state.h"

#include <cmath>

#include "trireme/ops/averages.h"
#include "trireme/ops/elementwise.h"
#include "trireme/tensor/copy.h"

namespace trireme::nn {

void State::propose(ops::Context& ctx, const StepPlace& place, std::int64_t row, const Tensor& x,
                    float factor) const {
  TRIREME_CHECK(0 <= place.run && place.run < std::ssize(proposed_),
                "nothing holds what is proposed for " + name());
  TRIREME_CHECK(0 <= place.number && place.number < place.count,
                "a micro-batch that is not of the step proposes " + name());
  if (place.number % spec_.together != 0) return;
  const int later = place.count / spec_.together - 1 - place.number / spec_.together;
  const auto momentum = static_cast<double>(spec_.momentum);
  const double weight =
      takes_mean_ ? 1.0 : momentum * std::pow(1.0 - momentum, static_cast<double>(later));
  const Tensor to = proposed_[static_cast<std::size_t>(place.run)].rows(row, row + 1);
  ops::add_scaled(ctx, x, static_cast<float>(weight) * factor, to);
}

State& StateSet::add(StateSpec spec) {
  TRIREME_CHECK(static_cast<std::int64_t>(spec.initial.size()) == spec.shape[0],
                "an initial value for each row of " + spec.name);
  return *states_.emplace_back(std::make_unique<State>(std::move(spec)));
}

StageStates::StageStates(ops::Context& ctx, std::vector<State*> states)
    : states_(std::move(states)) {
  for (const State* state : states_) elements_ += state->spec().shape.elements();
  if (empty()) return;
  values_ = ctx.allocate({elements_}, DType::kF32, MemoryUse::kParameters);
  std::int64_t at = 0;
  for (State* state : states_) {
    const Shape& shape = state->spec().shape;
    const std::int64_t end = at + shape.elements();
    state->value_ = values_.flat_range(at, end).reshape(shape);
    for (std::int64_t row = 0; row < shape[0]; ++row) {
      ops::fill(ctx, state->value_.rows(row, row + 1),
                state->spec().initial[static_cast<std::size_t>(row)]);
    }
    at = end;
  }
}

void StageStates::hold_proposals(ops::Context& ctx, int runs) {
  if (empty()) return;
  proposed_ = ctx.allocate({runs, elements_}, DType::kF32, MemoryUse::kGradients);
  ops::fill(ctx, proposed_, 0.0f);
  std::int64_t at = 0;
  for (State* state : states_) {
    const Shape& shape = state->spec().shape;
    state->proposed_.clear();
    for (int run = 0; run < runs; ++run) {
      const std::int64_t begin = run * elements_ + at;
      state->proposed_.push_back(
          proposed_.flat_range(begin, begin + shape.elements()).reshape(shape));
    }
    at += shape.elements();
  }
}

void StageStates::commit(ops::Context& ctx, const Tensor& sum, int micro_batches) {
  std::int64_t at = 0;
  for (State* state : states_) {
    const Shape& shape = state->spec().shape;
    const double keep = state->takes_mean_
                            ? 1.0
                            : std::pow(1.0 - static_cast<double>(state->spec_.momentum),
                                       static_cast<double>(micro_batches / state->spec_.together));
    ops::commit_state(ctx, static_cast<float>(keep),
                      sum.flat_range(at, at + shape.elements()).reshape(shape), state->value_);
    at += shape.elements();
  }
}

void StageStates::hold_averages(ops::Context& ctx) {
  if (empty()) return;
  averages_ = ctx.allocate({elements_}, DType::kF32, MemoryUse::kOptimizer);
  std::int64_t at = 0;
  for (State* state : states_) {
    const Shape& shape = state->spec().shape;
    state->average_ = averages_.flat_range(at, at + shape.elements()).reshape(shape);
    at += shape.elements();
  }
  begin_averages(ctx);
}

void StageStates::begin_averages(ops::Context& ctx) const {
  if (averages_.defined()) copy(values_, averages_, ctx.stream);
}

void StageStates::average(ops::Context& ctx, const ops::WeightAverage& rule) const {
  if (averages_.defined()) ops::average_weights(ctx, rule, values_, averages_);
}

void StageStates::exchange_averages(ops::Context& ctx) const {
  if (!averages_.defined()) return;
  const Tensor kept = ctx.allocate({elements_}, DType::kF32, MemoryUse::kWorkspace);
  copy(values_, kept, ctx.stream);
  copy(averages_, values_, ctx.stream);
  copy(kept, averages_, ctx.stream);
}

void StageStates::begin_mean(ops::Context& ctx) {
  for (State* state : states_) state->takes_mean_ = true;
  if (!empty()) ops::fill(ctx, values_, 0.0f);
}

void StageStates::end_mean(ops::Context& ctx, int micro_batches) {
  for (State* state : states_) {
    state->takes_mean_ = false;
    const double proposals = static_cast<double>(micro_batches / state->spec_.together);
    ops::scale(ctx, state->value_, static_cast<float>(1.0 / proposals));
  }
}

void StageStates::discard(ops::Context& ctx) {
  if (proposed_.defined()) ops::fill(ctx, proposed_, 0.0f);
}

}  // namespace trireme::nn
