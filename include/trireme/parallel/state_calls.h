// The communication that the model's state needs in a step, worked out from residences alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/nn/residence.h"
#include "trireme/nn/sharding.h"
#include "trireme/parallel/work_split.h"

namespace trireme::parallel {

// Tensors that lie one after the other in flat memory on this rank, and are reduced and gathered
// together. What is no slice's own span (divided, and the first of summed and copied) is equal for
// all of them.
struct ResidentGroup {
  std::string name;
  std::vector<nn::Residence> members;
  int index = 0;  // of this rank's shard, along the span that divides the memory
  Purpose purpose = Purpose::kGradients;  // of what is added up

  std::int64_t elements() const;
  nn::Sharding sharding(const GridShape& grid) const;
};

enum class Moment {
  kRun,         // after each run of micro-batches, when the group has its last contribution
  kRunsDone,    // after the last run of this rank
  kStepEnd,     // after all of those, before anyone reads the sums
  kBeforeUse,   // of weights that do not stay
  kBeforeStep,  // of weights that stay
  kOnce,        // of those that are frozen: before the first step
};

struct Call {
  Collective what = Collective::kAllReduce;
  Span over;
  std::size_t group = 0;  // by its place in what calls_of was given
  FlatRange of;           // the group's elements in memory, with padding; of a reduce-scatter its
                          // input, of an all-gather its output
  Moment when = Moment::kRun;
  Purpose why = Purpose::kGradients;
};

// How the state is to be held.
struct StateRules {
  // Only a shard of the sums is wanted, where memory is divided.
  bool to_shard = true;
  // Whole weights stay on every rank.
  bool whole_weights = true;
  // All sums have an order that depends on the contributions alone. Where they do not, copies that
  // are added up in different places become equal by a broadcast.
  bool fixed_order = true;
  // Sums over replicas are made of quantized terms (compressed_sum.h): these go to their owners,
  // and the parts of the result are gathered by those who want them.
  bool few_bits = false;
};

// Returns the calls of the groups' rank in a training step, in the order in which one group
// makes them; groups of one moment may make theirs in another order, the same on all ranks of a
// communicator. Spans of one rank need no call.
std::vector<Call> calls_of(std::span<const ResidentGroup> groups, const GridShape& grid,
                           const WorkSplit& work, const StateRules& rules);

}  // namespace trireme::parallel
