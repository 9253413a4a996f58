// Blocks: a model is a list of them, and each pipeline stage holds some that are neighbours.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/fields.h"
#include "trireme/nn/state.h"
#include "trireme/nn/tensor_parallel.h"
#include "trireme/nn/vocabulary_sizes.h"

namespace trireme::nn {

// The keys and values that attention layers keep during generation.
struct KeyValueCache {
  std::int64_t capacity = 0;                      // positions
  std::int64_t past = 0;                          // positions filled
  std::vector<std::pair<Tensor, Tensor>> layers;  // (keys, values) of each layer
};

// What every pipeline stage knows about a micro-batch without being sent it: its samples, each with
// `length` positions that have a target (the tokens of a text; one for a picture). Fields that say
// something of each position have batch * length rows; row b * length + t is position t of sample
// b.
struct MicroBatch {
  std::int64_t batch = 0;
  std::int64_t length = 0;
  Fields fields;                  // the input and the targets; without targets in generation
  std::int64_t target_count = 0;  // targets that are not masked, counted on the host
  Tensor samples;                 // (batch) int64: global sample numbers, which key random draws
  bool training = false;
  // (1) fp64: a loss block adds its sum over the targets to it, in training in its backward.
  Tensor loss_sum;
  // (2) int64, or undefined: a classification adds the numbers of targets whose logit is the
  // largest, and among the five largest. Complete when loss_sum is.
  Tensor correct;
  StepPlace place;  // in training: where it stands among the micro-batches of the step
  KeyValueCache* cache = nullptr;  // set in generation

  // The field of this name, undefined if there is none.
  Tensor field(std::string_view name) const { return fields.find(name); }

  // Without samples it stands for a micro-batch that other replicas have and this one has not: see
  // BlockPlan::collective.
  bool empty() const { return batch == 0; }
};

// Shape and type of one tensor that passes from one block to the next.
struct BoundaryTensor {
  Shape shape;
  std::optional<DType> dtype = {};  // nothing: the type that the model computes in

  bool operator==(const BoundaryTensor&) const = default;
};

class Block {
 public:
  virtual ~Block() = default;

  // `in` is what the block before returned; it is empty for the first block. The block does not
  // write to it. A loss block returns nothing. In generation the head returns the logits
  // (batch, vocabulary), fp32, of the last position, on every tensor rank.
  virtual Values forward(Tape& tape, const MicroBatch& batch, Values in) const = 0;
  // They take the place of forward and of its backward for an empty micro-batch: they make the
  // calls of those two that are collective over the data dimension, and do nothing else.
  virtual void forward_empty(ops::Context& /*ctx*/) const {}
  virtual void backward_empty(ops::Context& /*ctx*/) const {}
  // Whether this is a loss block, as BlockPlan::loss says of the plan.
  virtual bool is_loss() const { return false; }

  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }
  const StateSet& states() const { return states_; }

 protected:
  ParameterSet parameters_;
  StateSet states_;
};

// What a block is built with: the grid, and what the blocks of a stage share.
struct BuildContext {
  const ProcessGrid& grid;
  bool sequence_parallel = false;
  // Whether the linear layers of blocks multiply in e4m3 in training (ops/block_scaled.h). Weights
  // and activations are then bf16.
  bool block_scaled = false;
  // Whether each use of a shared parameter has a gradient of its own, which is reduced apart.
  bool separates_uses = false;
  // Memory pads the rows of vocabularies to a multiple of this. 1: to none, where a model's own
  // numbers are counted.
  std::int64_t vocabulary_multiple = kVocabularyMultiple;

  // Declares a parameter that other blocks use, too (BlockPlan::shares), under the same name.
  // Returns the one that an earlier block of this stage has declared, or adds one to `parameters`.
  Parameter& share(ParameterSet& parameters, ParameterSpec spec);
  struct Shared {
    Holders holders;             // the stages that use it
    Parameter* first = nullptr;  // as the first block of this stage has declared it
  };
  std::map<std::string, Shared> shared = {};  // by name

  // Returns a communicator besides those of the grid. All blocks of the stage share the one of a
  // label. The first call makes it and is collective over its ranks.
  std::shared_ptr<Communicator> comm(const GroupLabel& label);
  // The data dimension, for blocks that are BlockPlan::together: their calls wait for no reduction
  // of gradients.
  std::shared_ptr<Communicator> replicas();
  std::vector<std::shared_ptr<Communicator>> made = {};  // by comm(), in this order
};

// A block that some stage will build. Its costs, and what its boundary holds, decide where the
// model is cut into stages. They are what the operations of a sample's forward in training count in
// fp32, on no device in particular (ops::make_counting_context); each kind of gradient costs as
// much. A family leaves them at 0, and models/plan_costs.h counts them.
struct BlockPlan {
  std::string name;
  // Blocks of a model that have the same kind cost the same. Empty: like no other.
  std::string kind = {};
  double flops = 0.0;                    // of matrix products, convolutions and attention
  double bytes = 0.0;                    // of the tensors that each operation reads or writes
  std::int64_t parameters = 0;           // elements, without those of `shares`
  std::int64_t states = 0;               // elements of tensors without gradient (nn/state.h)
  std::vector<std::string> shares = {};  // the parameters that other blocks use, too
  // It ends in a loss. In training its products are all in its backward: see Tape::record_loss.
  bool loss = false;
  // Collective over the tensor dimension.
  std::function<std::unique_ptr<Block>(BuildContext&)> build;
  // Each micro-batch makes calls that are collective over the data dimension. Then all replicas run
  // equally many micro-batches, and those that have fewer run empty ones as well.
  bool collective = false;
  // What replicas compute at the same time belongs together, such as the statistics of batch norms
  // over all replicas: micro-batch m of a step is that of replica m mod D (BatchRuns::dealt), and D
  // divides their number. Such a block is `collective` too.
  bool together = false;
  // What forward returns for a micro-batch of batch x length positions, on one of the tensor ranks,
  // which all return the same shapes. Empty for a loss block. Both sides of a boundary between
  // stages learn from it what is sent.
  std::function<std::vector<BoundaryTensor>(std::int64_t batch, std::int64_t length,
                                            const TensorParallel& parallel)>
      boundary = {};
  // How many classes a row has logits for, in a loss that works through slices of rows
  // (loss_slice_rows). 0: the logits of all rows exist at once.
  std::int64_t sliced_classes = 0;
  DType logits = DType::kF32;  // the wanted type of these (type_of_logits)
};

// A model before it is built. Every stage has the whole plan.
struct ModelPlan {
  std::string description;  // for the start-up table
  std::vector<BlockPlan> blocks;
  std::int64_t length = 1;  // of a sample: see MicroBatch
  // The rows of a sample in its blocks, which sequence parallelism splits; 0: `length`.
  std::int64_t rows = 0;
  std::int64_t parameters = 0;    // elements; a shared parameter counts once
  double flops_per_sample = 0.0;  // forward and backward: three times those of the blocks
};

}  // namespace trireme::nn
