// The end of a step for tensors without gradient (nn/state.h).
#pragma once

#include <optional>

#include "trireme/parallel/stage.h"
#include "trireme/parallel/tree_sum.h"
#include "trireme/parallel/work_split.h"

namespace trireme::parallel {

// Adds up what the micro-batches of a step propose for the states of a stage. The order of the sum
// is that of gradients: a run in the order of its micro-batches, the runs along T(N). So with equal
// runs the bits depend on neither replicas nor stages nor schedules. It takes as many times the
// states' memory as this replica has runs, and log2 of that for the sum. What travels is one sum
// or, where runs are dealt out in rounds, one for each run of this replica, in a single call.
class StateUpdates {
 public:
  // Collective over the tensor dimension if the stage has states. Until it is made nothing can be
  // proposed for them.
  StateUpdates(ops::Context& ctx, Stage& stage, const WorkSplit& work);

  // Collective over the ranks of commit(). Makes its calls once, with nothing proposed, so that
  // libraries connect.
  void connect();
  // Collective over the data dimension, and over the tensor dimension where a library adds up
  // there, if the stage has states. Changes the values at the end of a step of `micro_batches`
  // micro-batches, unless StepState::finite says that it is skipped. Every rank that holds a state
  // gets the same bits. In stream order.
  void commit(int micro_batches);
  void discard() { states_.discard(ctx_); }

 private:
  // Returns the sum over all runs and replicas.
  Tensor add_up();

  ops::Context& ctx_;
  nn::StageStates& states_;
  Communicator* replicas_ = nullptr;  // null: there is one
  Communicator* copies_ = nullptr;    // the tensor ranks, each of which holds the states
  int runs_;                          // of this replica
  bool reduces_each_;                 // each run, not the sum of this replica's runs
  bool hands_on_ = false;             // the sums of the first tensor rank are those of all
  std::optional<TreeSum> sum_;        // if there are several runs
};

}  // namespace trireme::parallel
