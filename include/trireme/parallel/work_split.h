// Which replica computes which micro-batch of a step, and how these form runs whose gradients are
// added up. Whoever deals, reads, computes, adds up or counts micro-batches asks a WorkSplit.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::parallel {

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
};

struct Micro {
  int number = 0;  // in the step, from 0
  int run = 0;     // of the replica's runs, from 0
};

class WorkSplit {
 public:
  // The split of steps whose number of micro-batches nobody knows ahead: a run for each replica.
  WorkSplit() = default;
  // Shares as even as possible: a later replica may have one micro-batch more.
  static WorkSplit even(int micro_batches, int replicas, const BatchRuns& runs = {});
  // So many neighbours for each replica, one at least, for replicas of unequal speed. Each share is
  // one run, so BatchRuns::runs is 0 or the number of replicas, and nothing is dealt.
  static WorkSplit of_shares(const std::vector<int>& shares, const BatchRuns& runs = {});

  bool known() const { return micro_batches_ > 0; }
  int micro_batches() const { return micro_batches_; }  // of all replicas
  int replicas() const { return replicas_; }
  int count(int replica) const;  // of its micro-batches
  int most() const;              // of a replica
  int least() const;             // likewise
  // Whether the shares were given.
  bool has_shares() const { return !begins_.empty(); }
  // The micro-batch that a replica computes as its i-th, 0 <= i < count(replica).
  Micro micro(int replica, int i) const;
  std::vector<Micro> of(int replica) const;

  int runs() const { return runs_of_replica_; }  // of each replica
  int runs_of_step() const { return runs_of_replica_ * replicas_; }
  // Whether each run of a replica is reduced, not the sum of its runs.
  bool reduces_each() const { return in_rounds_; }
  // Whether each run is one micro-batch and is reduced, or is all that a replica has.
  bool reduces_each_micro_batch() const;
  // Whether the number of runs was asked for, so that bits are to be those of other grids.
  bool keeps_runs() const { return rule_.runs != 0; }
  const BatchRuns& rule() const { return rule_; }

  // The same with so many micro-batches fewer on each replica, for dry runs: runs as before, though
  // some may be empty. Of given shares one at least stays. Nobody asks it for micro-batches.
  WorkSplit shortened(int fewer) const;

 private:
  int begin_of(int replica) const;  // the first micro-batch of a replica that has neighbours

  int micro_batches_ = 0, replicas_ = 1, runs_of_replica_ = 1;
  bool in_rounds_ = false;
  BatchRuns rule_;
  // The first micro-batch of each replica, and an end, where the shares were given; otherwise
  // empty.
  std::vector<int> begins_;
};

// The values that BatchRuns::runs can have, in rising order: the number of replicas, and those of
// its multiples that divide the micro-batches and that one of the two ways can add up.
std::vector<int> possible_batch_runs(int micro_batches, int replicas);

}  // namespace trireme::parallel
