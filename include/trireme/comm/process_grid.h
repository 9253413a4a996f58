// The ranks as a grid: data x pipeline x tensor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/rank_runtime.h"

namespace trireme {

struct GridShape {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;

  int ranks() const { return data * pipeline * tensor; }
  std::string to_string() const;  // "2 x 1 x 2 (data x pipeline x tensor)"
  bool operator==(const GridShape&) const = default;
};

// The grid that --grid.* asks for. A dimension that is left out follows from the number of ranks.
// If several are left out, data takes all ranks that remain and the others are 1.
struct GridRequest {
  std::optional<int> data, pipeline, tensor;
};

// Throws ConfigError whose message names a grid that would fit.
GridShape resolve_grid(const GridRequest& request, int world_size);

// Tensor ranks are neighbours, then pipeline; data is the outermost dimension:
// rank = (data_index * pipeline + pipeline_index) * tensor + tensor_index.
// A dimension of size 1 is an identity: its communicator has one rank and costs nothing.
class ProcessGrid {
 public:
  // Collective over the listed ranks. `order` lists the world ranks that form the grid, by place:
  // order[i] is the rank at place i of the formula above. If it is left out, the grid is all ranks
  // of the world in their order.
  ProcessGrid(RankRuntime& runtime, const GridShape& shape, std::vector<int> order = {});

  const GridShape& shape() const { return shape_; }
  int data_index() const { return data_index_; }
  int pipeline_index() const { return pipeline_index_; }
  int tensor_index() const { return tensor_index_; }

  // All ranks of the grid, numbered by place; "grid" in messages. For tensors of the host alone.
  Communicator& world() const { return *world_; }
  Communicator& data() const { return *data_; }          // the same part of the model, other data
  Communicator& pipeline() const { return *pipeline_; }  // the pipeline stages of this replica
  Communicator& tensor() const { return *tensor_; }      // the tensor-parallel ranks of this stage
  Communicator& model() const { return *model_; }        // pipeline x tensor: one replica
  RankRuntime& runtime() const { return runtime_; }

  // Returns the rank in RankRuntime::world() of a place in the grid.
  int world_rank(int data_index, int pipeline_index, int tensor_index) const;

 private:
  RankRuntime& runtime_;
  GridShape shape_;
  std::vector<int> order_;
  int data_index_, pipeline_index_, tensor_index_;
  std::unique_ptr<Communicator> world_, data_, pipeline_, tensor_, model_;
};

}  // namespace trireme
