// Reverse-mode differentiation, one operation at a time; one tape per micro-batch.
#pragma once

#include <functional>
#include <vector>

#include "trireme/nn/parameter.h"

namespace trireme::nn {

// Told when a parameter's gradient has received one operation's contribution.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  virtual void contributed(const Parameter& parameter) = 0;
};

// Where a value's gradient adds up. Unlike the value it keeps no tensor alive, so it is what a
// gradient function holds of an input that it does not read.
class GradientSlot {
 public:
  GradientSlot() = default;

 private:
  friend class Tape;
  friend class Value;
  explicit GradientSlot(int id) : id_(id) {}
  int id_ = -1;  // none: the value needs no gradient
};

// A tensor on the tape. Copies are the same value.
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
  // Without `recording` nothing is kept: evaluation and generation.
  Tape(ops::Context& ctx, bool recording, GradientListener* listener = nullptr)
      : ctx_(ctx), recording_(recording), listener_(listener) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  ops::Context& context() const { return ctx_; }
  bool recording() const { return recording_; }

  // A value that no operation of this tape made: data, or what another stage sent. With
  // `needs_gradient` its gradient can be asked for after backward.
  Value input(Tensor tensor, bool needs_gradient);

  // Computes the gradients of an operation's inputs from that of its output and hands them to
  // add_gradient.
  using InputGradient = std::function<void(Tape&, const Tensor& dy)>;
  // Adds to the gradients of the operation's parameters; may run later than InputGradient.
  using WeightGradient = std::function<void(Tape&, const Tensor& dy)>;

  // An operation made y from `inputs` and `parameters`. On a recording tape the functions are kept
  // until backward if any of the two can receive a gradient; either may be empty.
  Value record(Tensor y, const Values& inputs, InputGradient input_gradient,
               std::vector<const Parameter*> parameters = {}, WeightGradient weight_gradient = {});

  // An operation that made no value, but whose inputs have gradients: a loss. Its gradient function
  // is called first of all, with an undefined dy.
  void record_loss(const Values& inputs, InputGradient input_gradient,
                   std::vector<const Parameter*> parameters = {});

  // For InputGradient: adds to a value's gradient, if it needs one. `pending`, if any, is waited
  // for before the gradient is read.
  void add_gradient(GradientSlot to, Tensor gradient, Work pending = {});

  // For InputGradient: what a value's gradient is so far, taken out of its slot; undefined where
  // there is none. An operation that adds its own part on the way hands the sum to add_gradient.
  Tensor take_gradient(GradientSlot from);

  // For InputGradient: dy to be written over, a copy where other values have the same gradient.
  Tensor writable(const Tensor& dy) const;

  // Starts from the gradients of `outputs` (may be empty: the losses on this tape alone). With
  // `defer_weights` the weight gradients wait for backward_weights; else each follows its input's.
  void backward(const Values& outputs, const Tensors& gradients, bool defer_weights = false);
  void backward_weights();

  // After backward. Undefined if nothing contributed.
  Tensor gradient(const Value& value) const;

 private:
  struct Node {
    int output;  // slot, or -1 for a loss
    InputGradient input_gradient;
    WeightGradient weight_gradient;
    std::vector<const Parameter*> parameters;
  };
  struct Slot {
    Tensor gradient;
    Work pending;  // the communication that is still adding to it
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
