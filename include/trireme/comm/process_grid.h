// The ranks as a grid, and the communicators of its groups.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/comm/rank_runtime.h"

namespace trireme {

// A dimension of size 1 is an identity: its communicator has one rank and costs nothing.
class ProcessGrid {
 public:
  // Collective over the listed ranks. `order` lists the world ranks that form the grid, by place
  // (GridShape). If it is left out, the grid is all ranks of the world in their order.
  ProcessGrid(RankRuntime& runtime, const GridShape& shape, std::vector<int> order = {});

  const GridShape& shape() const { return shape_; }
  int extent(Axes axes) const { return shape_.extent(axes); }
  // Where this rank is along the axes: its rank in comm(axes).
  int index(Axes axes) const { return shape_.index(place_, axes); }
  // The ranks in RankRuntime::world() of this rank's group, by their numbers in it.
  std::vector<int> ranks(const Span& span) const;

  // The communicator of the ranks that differ from this one in these axes alone, numbered by place.
  // Making one is collective, so the constructor makes those that the program uses, under the names
  // that messages, traces and plans show:
  //   kDataAxes "data", Axis::kPipeline "pipeline", Axis::kTensor "tensor", kModelAxes "model",
  //   Axis::kReplicate "replicate", Axis::kShard "shard"
  // Where one factor of the data dimension is 1, the other one is the data dimension itself and
  // shares its communicator. Any other set is an InternalError that names it.
  Communicator& comm(Axes axes) const;
  // Collective over the ranks of its span. Makes another communicator.
  std::shared_ptr<Communicator> make(const GroupLabel& label) const;
  // All ranks of the grid, numbered by place; "grid" in messages. For tensors of the host alone.
  Communicator& world() const { return *world_; }
  // Every communicator of the grid once, world() first.
  std::vector<Communicator*> communicators() const;

  RankRuntime& runtime() const { return runtime_; }

 private:
  struct Group {
    Axes axes;
    std::shared_ptr<Communicator> comm;
  };

  RankRuntime& runtime_;
  GridShape shape_;
  std::vector<int> order_;
  int place_;
  std::unique_ptr<Communicator> world_;
  std::vector<Group> groups_;
};

}  // namespace trireme
