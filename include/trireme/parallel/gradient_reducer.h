// Adds up gradients over the ranks that hold copies of a parameter, group by group, while the
// backward pass goes on.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "trireme/parallel/stage.h"

namespace trireme::parallel {

// A group is complete when each of its parameters has received its contributions from every
// micro-batch of the step. Then its partial sums are added up within the replica, and after that
// the whole group is reduced over the data dimension. These reductions start in the order in which
// the groups were completed, which is the same on all replicas. On GPUs the groups with partial
// sums wait for the end of the backward pass: the ranks of a replica complete them at different
// points of their passes, and hosts must enter operations of several communicators in an order that
// does not depend on timing (src/comm/README.md).
//
// Gradients are fp32. They travel over the data dimension in the type that is given: in bf16 each
// replica's gradients are rounded first, and partial sums wherever they are sent on.
//
// Each rank of a replica that holds a copy of a parameter reduces it over the data dimension in its
// own communicator. If these communicators do not fix the order of sums (NCCL, MPI's own
// algorithms), or partial sums are rounded, the results may differ in the last bits and the copies
// would drift apart. Then the first holder broadcasts its gradient to the other holders after all
// reductions.
class GradientReducer : public nn::GradientListener {
 public:
  GradientReducer(ops::Context& ctx, const Stage& stage, DType travel = DType::kF32);

  // Sets the gradients to zero. `micro_batches` is this replica's share, which may differ by one
  // between replicas.
  void begin_step(int micro_batches);
  void contributed(const nn::Parameter& parameter) override;
  // Reduces what is left, and waits until all gradients are sums over all ranks (on a GPU the
  // context's stream waits). Throws InternalError if a group is incomplete.
  void finish_step();

 private:
  struct Group {
    nn::FlatGroup* flat;
    int uses;          // contributions per micro-batch
    bool has_partial;  // a parameter's gradients are partial sums: see Copies
    int missing = 0;   // contributions still to come in this step
    std::vector<Work> partial;
    Tensor rounded{};  // as it travels; empty: the gradients themselves travel
  };
  struct Reduction {
    Work work;
    const Group* group;
  };

  // A range of a group's gradients that other ranks of the replica hold too.
  struct Copied {
    nn::FlatGroup* flat;
    Communicator* holders;
    std::int64_t begin, end;
  };

  void find_copied();
  void start_partial(Group& group);
  // Starts the reduction over the data dimension of complete groups whose partial sums are done.
  // With `wait` it waits for partial sums and starts all of them.
  void advance(bool wait);
  Work reduce(const Group& group);

  ops::Context& ctx_;
  const Stage& stage_;
  std::vector<Group> groups_;
  std::map<const nn::FlatGroup*, Group*> by_flat_;
  std::deque<Group*> waiting_;
  std::vector<Group*> late_;
  std::vector<Reduction> reducing_;
  std::vector<Copied> copied_;  // to be broadcast; empty if the order of sums is fixed
};

// Collective over the model's ranks (pipeline x tensor). Sets sum (1) fp64, on every rank, to the
// sum of the squares of all gradients of the model, each counted once.
void sum_of_squared_gradients(ops::Context& ctx, const Stage& stage, const Tensor& sum);

}  // namespace trireme::parallel
