// Islands: replicas that each train as a run of its own does, and meet every few steps.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/comm/rank_runtime.h"

namespace trireme {

// The ranks of a job as islands of equal grids: each is a run of neighbours in `order`. Nothing of
// a step is shared among islands, so a ProcessGrid knows one island alone.
class Islands {
 public:
  // Collective over the listed ranks. `order` lists the world ranks of all islands, one island
  // after the other, each by place (GridShape). If it is left out, it is all ranks of the world.
  Islands(RankRuntime& runtime, const GridShape& of_each, int count, std::vector<int> order = {});

  int count() const { return count_; }
  int index() const { return index_; }  // of this rank's island, from 0
  // The world ranks of this rank's island, by place: the order of its ProcessGrid.
  const std::vector<int>& ranks() const { return ranks_; }
  // The ranks at the same place of the islands' grids, numbered by island. They hold the same part
  // of the model.
  Communicator& across() const { return *across_; }

 private:
  int count_, index_ = 0;
  std::vector<int> ranks_;
  std::unique_ptr<Communicator> across_;
};

}  // namespace trireme
