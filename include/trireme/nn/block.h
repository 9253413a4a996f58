// The unit of everything: a model is a list of blocks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/tape.h"

namespace trireme::nn {

// What attention layers remember during generation: keys and values by layer.
struct KeyValueCache {
  std::int64_t capacity = 0;  // positions
  std::int64_t past = 0;      // positions filled
  std::vector<std::pair<Tensor, Tensor>> layers;
};

// What every pipeline stage knows of a micro-batch without a message. Rows are batch * length, row
// b * length + t being position t of sample b.
struct MicroBatch {
  std::int64_t batch = 0;
  std::int64_t length = 0;
  Tensor tokens;   // (rows) int32; undefined where this stage has no use for them
  Tensor targets;  // (rows) int32, ops::kMaskedTarget where there is none; undefined in generation
  std::int64_t target_count = 0;  // of those that are not masked: what the host knows of them
  // (rows) int32: the first position of the sample (of the cache, in generation) that attention
  // reaches back to; undefined: the very first.
  Tensor first_key;
  Tensor samples;    // (batch) int64: global sample numbers, for random draws
  bool training = false;
  Tensor loss_sum;                 // (1) fp64: loss blocks add the sum over their targets
  KeyValueCache* cache = nullptr;  // set in generation
};

// Shape and type of one tensor that passes a block boundary.
struct BoundaryTensor {
  Shape shape;
  DType dtype;
};

class Block {
 public:
  virtual ~Block() = default;

  // `in` is what the block before returned; empty for the first. A loss block adds to
  // batch.loss_sum and returns nothing; a head in generation returns logits (batch, vocabulary),
  // fp32, of the last position, on every tensor rank.
  virtual Values forward(Tape& tape, const MicroBatch& batch, Values in) const = 0;

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }

 protected:
  ParameterSet parameters_;
};

// Where a block is being built.
struct BuildContext {
  const ProcessGrid& grid;
  bool sequence_parallel = false;
  // The tied parameter's copies on other stages; none where one stage alone holds it.
  Copies tied;
  // Set by the first block of this stage that uses the tied parameter; the others share it.
  Parameter* tied_parameter = nullptr;

  // The tensor dimension cut into runs of `count` neighbours, a divisor of it: the run that this
  // rank is in. One communicator for all blocks of the stage, made when it is first asked for:
  // collective over the run then.
  std::shared_ptr<Communicator> tensor_neighbours(int count);
  std::map<int, std::shared_ptr<Communicator>> made_neighbours = {};  // by count
};

// A block that some stage will build: its cost in FLOPs per sample decides where the stages part.
struct BlockPlan {
  std::string name;
  double cost = 0.0;
  bool holds_tied = false;  // uses the tied parameter
  // Collective over the tensor dimension.
  std::function<std::unique_ptr<Block>(BuildContext&)> build;
};

// A model before it is built: what every stage knows of it.
struct ModelPlan {
  std::string description;  // for the start-up table
  std::vector<BlockPlan> blocks;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
  std::int64_t parameters = 0;   // elements; tied ones once
  double flops_per_token = 0.0;  // forward and backward, matrix products alone, at full context
};

}  // namespace trireme::nn
