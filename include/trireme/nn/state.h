// Named tensors of a model that have no gradient, such as the running statistics of batch norms.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/ops/averages.h"

namespace trireme::nn {

// Which of the micro-batches of a step one is, counted over all replicas.
struct StepPlace {
  int number = 0;  // from 0
  int count = 1;   // of the step
  int run = 0;     // which of this replica's runs of micro-batches it is in, from 0
};

struct StateSpec {
  std::string name;  // global: "stages.2.norm.running"
  Shape shape;
  std::vector<float> initial;  // the value of each row
  // After micro-batch m of a step proposes p, the value is (1 - momentum) value + momentum p.
  float momentum = 0.1f;
  // So many neighbouring micro-batches propose together, as one; the first of them does it.
  int together = 1;
};

// The value changes at the end of a step alone: every micro-batch of a step sees the same. A
// forward in training proposes an update; evaluation does not, nor does a forward that is computed
// again. Every rank that computes with it, on whatever replica or tensor rank, holds all of it.
class State {
 public:
  explicit State(StateSpec spec) : spec_(std::move(spec)) {}

  const std::string& name() const { return spec_.name; }
  const StateSpec& spec() const { return spec_; }
  const Tensor& value() const { return value_; }  // fp32
  const Tensor& average() const {
    return average_;
  }  // of the values over updates; may be undefined
  // Proposes factor * x for row `row`. x is fp32, of a row's shape. Each micro-batch proposes once
  // for each row, and those of a run in their order. Does nothing if another one does it for this
  // micro-batch (StateSpec::together).
  void propose(ops::Context& ctx, const StepPlace& place, std::int64_t row, const Tensor& x,
               float factor = 1.0f) const;

 private:
  friend class StageStates;
  StateSpec spec_;
  bool takes_mean_ = false;  // StageStates::begin_mean
  Tensor value_;
  Tensor average_;    // over updates; undefined: none is held
  Tensors proposed_;  // by run: its part of the weighted sum
};

// The states of a block, in the order in which they were declared.
class StateSet {
 public:
  State& add(StateSpec spec);
  const std::vector<std::unique_ptr<State>>& states() const { return states_; }

 private:
  std::vector<std::unique_ptr<State>> states_;
};

// The memory of the states of a stage's blocks, and of what is proposed for them. What a step's
// micro-batches propose is folded in their global order: with k = 1 - momentum and M micro-batches
// the value becomes k^M value + the sum over m of momentum k^(M - 1 - m) p_m. That is a weighted
// sum, which each run of micro-batches adds up for itself; who adds up the runs and the replicas is
// parallel/state_updates.h.
class StageStates {
 public:
  StageStates() = default;
  // Allocates the values and sets them to the initial ones. The states must outlive this object.
  StageStates(ops::Context& ctx, std::vector<State*> states);

  bool empty() const { return states_.empty(); }
  std::int64_t elements() const { return elements_; }  // of all states
  const std::vector<State*>& states() const { return states_; }

  // Allocates memory for what so many runs propose. Without it nothing can be proposed.
  void hold_proposals(ops::Context& ctx, int runs);
  // (runs, elements of all states), fp32.
  const Tensor& proposed() const { return proposed_; }
  // Changes the values at the end of a step of `micro_batches` micro-batches, whose weighted sum is
  // `sum` (elements of all states), when StepState::finite is known: a step that is skipped changes
  // nothing. The contents of `sum` are undefined then.
  void commit(ops::Context& ctx, const Tensor& sum, int micro_batches);
  // Allocates averages of the values.
  void hold_averages(ops::Context& ctx);
  void begin_averages(ops::Context& ctx) const;  // sets them to the values
  // At the end of a step, after commit and ops::count_average.
  void average(ops::Context& ctx, const ops::WeightAverage& rule) const;
  // The averages become the values and the values the averages, in their memory.
  void exchange_averages(ops::Context& ctx) const;
  // From begin_mean to end_mean the values become the plain means of what the micro-batches between
  // propose, `micro_batches` in all: steps end with commit as ever.
  void begin_mean(ops::Context& ctx);
  void end_mean(ops::Context& ctx, int micro_batches);
  // Forgets what was proposed. Does nothing where nothing can be.
  void discard(ops::Context& ctx);

 private:
  std::int64_t elements_ = 0;
  std::vector<State*> states_;
  Tensor values_, averages_;  // (elements of all states); averages_ may be undefined
  Tensor proposed_;
};

}  // namespace trireme::nn
