// The run of neighbouring blocks on one micro-batch, and what is kept of it between forward and
// backward.
#pragma once

#include <memory>
#include <span>

#include "trireme/nn/block.h"

namespace trireme::nn {

// Neighbouring blocks of a model, in its order.
using BlockSpan = std::span<const std::unique_ptr<Block>>;

// Call forward once; where backward follows, call it once too, and backward_weights after it if the
// weight gradients were deferred. Whoever runs blocks holds one BlockRun for each micro-batch, and
// hands tensors from one to the next. It knows nothing of what is inside. The run of an empty
// micro-batch makes the collective calls of its blocks, and takes and returns no tensors.
class BlockRun {
 public:
  // What a run keeps from forward to backward.
  enum class Keep {
    kNothing,  // no backward follows: evaluation and generation
    kTape,     // all that backward needs
    // The same without what few FLOPs make again: the outputs of norms and activations. Backward
    // makes each of them when it needs it. It repeats no matrix product, no attention and no
    // communication (Korthikanti et al. 2022 call it selective).
    kSelective,
    kInput,  // the input alone: backward computes the forward again (Chen et al. 2016)
  };

  // Blocks, micro-batch and listener must outlive the run. The listener learns of each contribution
  // to a parameter's gradient; it may be null. Without `input_gradient` nothing before the blocks
  // trains, so backward stops at the first of them that has a parameter that trains. Where none
  // has, nothing is kept with Keep::kTape, and no backward follows.
  BlockRun(ops::Context& ctx, BlockSpan blocks, const MicroBatch& batch, Keep keep,
           GradientListener* listener = nullptr, bool input_gradient = true)
      : blocks_(blocks),
        batch_(batch),
        keep_(keep),
        listener_(listener),
        input_gradient_(input_gradient),
        tape_(ctx, keep != Keep::kNothing, listener, keep == Keep::kSelective) {}

  // `in` is what the block before returned; it is empty for the model's first block. Returns what
  // the last block returns.
  Tensors forward(Tensors in);
  // `dy`: the gradients of what forward returned, one for each. Returns those of forward's input;
  // nothing without `input_gradient`.
  // With `defer_weights` the weight gradients are left to backward_weights, except those of a block
  // that ends in the loss: some of them come with its input gradient, so all do. Then the
  // contributions to each group of parameters come in the order of micro-batches.
  // Random draws depend on the micro-batch and the step alone (see MicroBatch::samples), so a
  // forward that is computed again gives the same bits.
  Tensors backward(Tensors dy, bool defer_weights = false);
  void backward_weights();

 private:
  Tensors record(Tensors in);
  // The blocks that have a backward.
  BlockSpan backward_blocks() const;
  // Prepares the gradients of the blocks that end in a loss, or of the others.
  void prepare_gradients(bool of_losses) const;

  BlockSpan blocks_;
  const MicroBatch& batch_;
  Keep keep_;
  GradientListener* listener_;
  bool input_gradient_;
  Tensors input_;  // with Keep::kInput, until backward
  Tape tape_;
  GradientSlots inputs_, outputs_;  // of what is on the tape
};

}  // namespace trireme::nn
