// Named tensors of a model that have no gradient, such as the running statistics of batch norms.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/ops/context.h"

namespace trireme::nn {

// Which of the micro-batches of a step one is, counted over all replicas.
struct StepPlace {
  int number = 0;  // from 0
  int count = 1;   // of the step
};

struct StateSpec {
  std::string name;  // global: "stages.2.norm.running"
  Shape shape;
  std::vector<float> initial;  // the value of each row
  // After micro-batch m of a step proposes p, the value is (1 - momentum) value + momentum p.
  float momentum = 0.1f;
};

// The value changes at the end of a step alone: every micro-batch of a step sees the same. A
// forward in training proposes an update; evaluation does not, nor does a forward that is computed
// again. Every replica holds the whole tensor.
class State {
 public:
  explicit State(StateSpec spec) : spec_(std::move(spec)) {}

  const std::string& name() const { return spec_.name; }
  const StateSpec& spec() const { return spec_; }
  const Tensor& value() const { return value_; }  // fp32
  // Proposes factor * x for row `row`. x is fp32, of a row's shape. Each micro-batch proposes once
  // for each row.
  void propose(ops::Context& ctx, const StepPlace& place, std::int64_t row, const Tensor& x,
               float factor = 1.0f) const;

 private:
  friend class StageStates;
  StateSpec spec_;
  Tensor value_;
  Tensor proposed_;  // this replica's part of the weighted sum
};

// The states of a block, in the order in which they were declared.
class StateSet {
 public:
  State& add(StateSpec spec);
  const std::vector<std::unique_ptr<State>>& states() const { return states_; }

 private:
  std::vector<std::unique_ptr<State>> states_;
};

// The memory of the states of a stage's blocks, and their update. What a step's micro-batches
// propose is folded in their global order: with k = 1 - momentum and M micro-batches the value
// becomes k^M value + the sum over m of momentum k^(M - 1 - m) p_m. So each replica adds up its own
// part, and one sum over the replicas completes it, whichever of them computed which micro-batch.
class StageStates {
 public:
  StageStates() = default;
  // Allocates the states' memory and sets their initial values. The states must outlive this
  // object. Without `trains` nothing can be proposed.
  StageStates(ops::Context& ctx, std::vector<State*> states, bool trains);

  bool empty() const { return states_.empty(); }
  const std::vector<State*>& states() const { return states_; }
  // Collective over `replicas` if there are states. Call it at the end of a step of `micro_batches`
  // micro-batches, when StepState::finite is known: a step that is skipped changes nothing. In
  // stream order.
  void commit(ops::Context& ctx, Communicator& replicas, int micro_batches);
  // Forgets what was proposed.
  void discard(ops::Context& ctx);

 private:
  std::vector<State*> states_;
  Tensor proposed_;  // of all states, so that one reduction does
};

}  // namespace trireme::nn
