// Reverse-mode differentiation, operation by operation. Each block run (block_run.h) has a tape of
// its own.
#pragma once

#include <functional>
#include <vector>

#include "trireme/nn/parameter.h"

namespace trireme::nn {

class GradientListener {
 public:
  virtual ~GradientListener() = default;
  // A block run calls it for each group of its blocks before its backward, or its deferred weight
  // gradients, may add to the group's gradients.
  virtual void prepare(const FlatGroup& group);
  // The tape calls it each time an operation has added its contribution to a parameter's gradient.
  // An operation whose output nothing used counts too.
  virtual void contributed(const Parameter& parameter) = 0;
};

// The place where a value's gradient is accumulated. Unlike a Value it keeps no tensor alive, so a
// gradient function holds the slot of an input that it does not read.
class GradientSlot {
 public:
  GradientSlot() = default;

 private:
  friend class Tape;
  friend class Value;
  explicit GradientSlot(int id) : id_(id) {}
  int id_ = -1;  // -1: the value needs no gradient
};
using GradientSlots = std::vector<GradientSlot>;

// A tensor on the tape. Copies of a Value refer to the same value.
class Value {
 public:
  Value() = default;
  const Tensor& tensor() const { return tensor_; }
  const Shape& shape() const { return tensor_.shape(); }
  bool needs_gradient() const { return slot_.id_ >= 0; }
  GradientSlot slot() const { return slot_; }

 private:
  friend class Tape;
  Value(Tensor tensor, int id) : tensor_(std::move(tensor)), slot_(id) {}
  Tensor tensor_;
  GradientSlot slot_;
};
using Values = std::vector<Value>;

class Tape {
 public:
  // Without `recording` the tape keeps nothing; evaluation and generation use that.
  Tape(ops::Context& ctx, bool recording, GradientListener* listener = nullptr)
      : ctx_(ctx), recording_(recording), listener_(listener) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  ops::Context& context() const { return ctx_; }
  bool recording() const { return recording_; }

  // A value that no operation of this tape made: data, or what the blocks before returned. With
  // `needs_gradient` the tape computes its gradient, which take_gradient returns after backward.
  Value input(Tensor tensor, bool needs_gradient);

  // Computes the gradients of an operation's inputs from the gradient of its output, dy, and hands
  // them to add_gradient.
  using InputGradient = std::function<void(Tape&, const Tensor& dy)>;
  // Adds to the gradients of the operation's parameters. It may run later than InputGradient.
  using WeightGradient = std::function<void(Tape&, const Tensor& dy)>;

  // Records an operation that made y from `inputs` and `parameters`. A recording tape keeps the two
  // functions until backward if an input needs a gradient or there are parameters. Either function
  // may be empty.
  Value record(Tensor y, const Values& inputs, InputGradient input_gradient,
               std::vector<const Parameter*> parameters = {}, WeightGradient weight_gradient = {});

  // Records an operation that made no value but gives its inputs gradients: a loss. backward()
  // calls `gradient` with an undefined dy, before the functions of all operations recorded earlier.
  // It adds to the gradients of `parameters` too, so these are never deferred.
  void record_loss(InputGradient gradient, std::vector<const Parameter*> parameters = {});

  // For InputGradient: adds to a value's gradient, if the value needs one. If `gradient` is still
  // in communication, `pending` is that work; the tape waits for it before it reads the gradient.
  void add_gradient(GradientSlot to, Tensor gradient, Work pending = {});

  // Takes the gradient accumulated so far out of a value's slot; undefined if there is none. For
  // the gradients of input() after backward, and for InputGradient: an operation that fuses the
  // addition of its own part hands the sum to add_gradient.
  Tensor take_gradient(GradientSlot from);

  // For InputGradient: returns a tensor with dy's values that may be overwritten. It is dy itself,
  // or a copy if other values share that gradient.
  Tensor writable(const Tensor& dy) const;

  // Runs the backward from the given gradients of `outputs`, one for each, and from the losses on
  // this tape. `outputs` may be empty. With `defer_weights` backward_weights() computes the weight
  // gradients; otherwise each operation's weight gradient follows its input gradient.
  void backward(const GradientSlots& outputs, Tensors gradients, bool defer_weights = false);
  void backward_weights();

 private:
  struct Node {
    int output;  // slot, or -1 for a loss
    InputGradient input_gradient;
    WeightGradient weight_gradient;
    std::vector<const Parameter*> parameters;
  };
  struct Slot {
    Tensor gradient;
    Work pending;  // communication in flight that still writes it
  };

  void run_weights(Node& node, const Tensor& dy);

  ops::Context& ctx_;
  bool recording_;
  GradientListener* listener_;
  std::vector<Node> nodes_;
  std::vector<Slot> slots_;
  std::vector<std::pair<Node, Tensor>> deferred_;
};

}  // namespace trireme::nn
