// Adds up gradients over the ranks that hold copies of a parameter, group by group, while the
// backward pass goes on.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "trireme/parallel/stage.h"

namespace trireme::parallel {

// A group is complete when each of its parameters has received its contributions from every
// micro-batch of the step. Then partial sums are added up within the replica, and after them the
// whole group over the data dimension. Groups enter the data dimension in the order in which they
// were completed, which is the same on all replicas. On GPUs those with partial sums wait for the
// end of the backward pass: the ranks of a replica complete them at different places of their
// passes, and hosts must enter operations of several communicators in an order that timing does not
// decide (src/comm/README.md).
//
// The ranks of a replica that hold copies of a parameter reduce it over the data dimension each in
// a communicator of its own. Where these do not fix the order of sums (NCCL, MPI's own algorithms),
// the results may differ in the last bits and the copies would drift apart. There the first holder
// hands its gradient on to the others when all is reduced.
class GradientReducer : public nn::GradientListener {
 public:
  GradientReducer(ops::Context& ctx, const Stage& stage);

  // Zeroes the gradients. `micro_batches` is this replica's share, which may differ by one between
  // replicas.
  void begin_step(int micro_batches);
  void contributed(const nn::Parameter& parameter) override;
  // Waits until all gradients are sums over all ranks. Throws InternalError if a group is
  // incomplete.
  void finish_step();

 private:
  struct Group {
    nn::FlatGroup* flat;
    int uses;          // contributions per micro-batch
    bool has_partial;  // some parameter has partial sums within the replica
    int missing = 0;   // contributions still to come in this step
    std::vector<Work> partial;
  };

  // A range of a group's gradients that other ranks of the replica hold too.
  struct Copied {
    nn::FlatGroup* flat;
    Communicator* holders;
    std::int64_t begin, end;
  };

  void find_copied();
  void start_partial(Group& group);
  // Sends complete groups whose partial sums are done into the data dimension; with `wait`, all.
  void advance(bool wait);

  ops::Context& ctx_;
  const Stage& stage_;
  std::vector<Group> groups_;
  std::map<const nn::FlatGroup*, Group*> by_flat_;
  std::deque<Group*> waiting_;
  std::vector<Group*> late_;
  std::vector<Work> reducing_;
  std::vector<Copied> copied_;  // to be handed on; none where the order of sums is fixed
};

// Sum of the squares of all gradients of the model, each counted once, in sum (1) fp64, on every
// rank. Collective over the model's ranks (pipeline x tensor).
void sum_of_squared_gradients(ops::Context& ctx, const Stage& stage, const Tensor& sum);

}  // namespace trireme::parallel
