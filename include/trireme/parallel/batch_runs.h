// How the micro-batches of a step form runs, and which replica computes which.
#pragma once

#include <vector>

namespace trireme::parallel {

// A replica's share of the micro-batches of a step: [first, first + count). Shares are as even as
// possible.
struct MicroBatchShare {
  int first = 0;
  int count = 0;
};
MicroBatchShare share_of(int micro_batches, int replicas, int replica);
// Returns the most that a replica has: the last one has as many.
int largest_share(int micro_batches, int replicas);

// The micro-batches of a step are N equal runs of neighbours. Inside a run gradients are added up
// in the order of micro-batches, from zero; the gradient of the step is the sum of the runs' along
// the tree T(N) (trireme/comm/sum_tree.h). So for equal N its bits do not depend on the number of
// replicas D, which divides N. Where N is D, each replica's share is one run, and shares may differ
// by one micro-batch.
struct BatchRuns {
  int runs = 0;  // N; 0: as many as replicas
  // Which runs a replica computes. Either is chosen where the other cannot add along T(N), and this
  // says which one where both can. The bits are the same.
  //   false: a block of N / D neighbouring runs, which are added up before the only reduction. That
  //          takes log2(N / D) more whole gradients. N / D must be a power of two.
  //   true: runs d, d + D, ..., with a reduction after each, whose results are added up. They are
  //         shards where gradients are reduced to shards. D must be a power of two.
  bool reduces_each = false;
  // Micro-batch m is that of replica m mod D, for blocks that are BlockPlan::together. Then N is D
  // (0), and a replica's run is made of what it computes; or each micro-batch is a run, in rounds.
  bool dealt = false;

  int of_replica(int replicas) const { return runs == 0 ? 1 : runs / replicas; }
  bool in_rounds(int replicas) const;

  // The micro-batches of a replica, in the order in which it computes them. There are as many as in
  // share_of.
  std::vector<int> micro_batches_of(int micro_batches, int replicas, int replica) const;
};

// The values that BatchRuns::runs can have, in rising order: the number of replicas, and those of
// its multiples that divide the micro-batches and that one of the two ways can add up.
std::vector<int> possible_batch_runs(int micro_batches, int replicas);

}  // namespace trireme::parallel
