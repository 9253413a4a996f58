// Adds up gradients over the ranks that hold copies of a parameter, group by group, while the
// backward pass goes on.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "trireme/parallel/stage.h"

namespace trireme::parallel {

// A group is complete when each of its parameters has received its contributions from every
// micro-batch of the step. Then its reduction begins, whose phases the group knows (flat_group.h).
// Each phase starts for one group after the other, in the order in which the groups were completed,
// which is the same on all replicas. On GPUs, and where blocks make calls over the data dimension
// themselves, the groups that are reduced in several steps wait for the end of the backward pass:
// the ranks of a replica complete them at different points of their passes, and hosts must enter
// operations in an order that does not depend on timing (src/comm/README.md).
//
// Each rank of a replica that holds a copy of a parameter reduces it over the data dimension in its
// own communicator. If these communicators do not fix the order of sums (NCCL, MPI's own
// algorithms), or partial sums are rounded, the results may differ in the last bits and the copies
// would drift apart. Then the first holder broadcasts its gradient to the other holders after all
// reductions.
class GradientReducer : public nn::GradientListener {
 public:
  // Collective over the model's ranks (pipeline x tensor), and over the data dimension if gradients
  // travel rounded.
  GradientReducer(ops::Context& ctx, const Stage& stage, const nn::ReductionOptions& options = {});

  // Sets the gradients to zero. `micro_batches` is this replica's share, at least 1. Shares may
  // differ between replicas.
  void begin_step(int micro_batches);
  void contributed(const nn::Parameter& parameter) override;
  // Reduces what is left, and waits until all gradients are sums over all ranks (on a GPU the
  // context's stream waits). Throws InternalError if a group is incomplete.
  void finish_step();

 private:
  struct Group {
    nn::FlatGroup* flat;
    int missing = 0;            // contributions still to come in this step
    std::vector<Work> works{};  // of the phase that was started last
  };

  void start(Group& group, nn::FlatGroup::Phase phase);
  // Starts the next phase of the groups that are done with one. With `wait` it waits for them.
  void advance(bool wait);

  ops::Context& ctx_;
  bool defers_;  // groups that are reduced in several steps wait for the end of the backward pass
  std::vector<Group> groups_;
  std::map<const nn::FlatGroup*, Group*> by_flat_;
  std::vector<Group*> late_;
  // By phase, in the order of starting: the groups that are in it and have another before them.
  std::map<nn::FlatGroup::Phase, std::deque<Group*>> waiting_;
  std::vector<Group*> reducing_;  // in their last phase
  bool hands_on_ = false;         // copies are broadcast
};

// Collective over the model's ranks (pipeline x tensor), and over those that share a copy of it.
// Sets sum (1) fp64, on every rank, to the sum of the squares of all gradients of the model, each
// counted once.
void sum_of_squared_gradients(ops::Context& ctx, const Stage& stage, const Tensor& sum);

}  // namespace trireme::parallel
