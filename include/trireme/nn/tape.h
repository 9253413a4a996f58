// Reverse-mode differentiation, operation by operation. Each block run (block_run.h) has a tape of
// its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/nn/parameter.h"
#include "trireme/tensor/profiler_range.h"

namespace trireme::nn {

class GradientListener {
 public:
  virtual ~GradientListener() = default;
  // A block run calls it for each group of its blocks, frozen ones too, before its backward, or its
  // deferred weight gradients, may add to gradients of the block.
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

// Makes a tensor again, with the same bits, in the backward.
using Remake = std::function<Tensor(ops::Context&)>;

// What a gradient function holds of a tensor that it will read: the tensor, or how it is made again
// (Tape::can_remake). Copies share what has been made.
class Kept {
 public:
  Kept() = default;
  // Call it in the gradient function alone.
  Tensor tensor(ops::Context& ctx) const { return source_ ? source_->tensor(ctx) : tensor_; }

 private:
  friend class Tape;
  friend class Value;
  struct Source {
    Tensor tensor(ops::Context& ctx) const { return made.defined() ? made : make(ctx); }
    void settle(ops::Context& ctx);  // keeps the tensor and lets go of what `make` reads

    Remake make;
    Tensor made;
  };
  Tensor tensor_;
  std::shared_ptr<Source> source_;  // takes tensor_'s place if it is there
};

// The column sums of a value's gradient, for the bias that the operation behind the value added.
// Who makes the whole gradient in one pass may make them in the same pass.
struct ColumnSums {
  Tensor of;    // (rows, C)
  Tensor sums;  // (C), fp32
};

// A tensor on the tape. Copies of a Value refer to the same value.
class Value {
 public:
  Value() = default;
  const Tensor& tensor() const { return tensor_; }
  const Shape& shape() const { return tensor_.shape(); }
  DType dtype() const { return tensor_.dtype(); }
  bool needs_gradient() const { return slot_.id_ >= 0; }
  GradientSlot slot() const { return slot_; }
  // Keeps the tensor for a gradient function that reads it.
  Kept kept() const;
  // Whether kept() keeps how the tensor is made again instead.
  bool is_remade() const { return source_ != nullptr; }

  // The same value, with a place for the column sums of its gradient. Whoever reads the place
  // compares `of` with the gradient: it may be empty, and another operation may have used the
  // value.
  Value with_sums(std::shared_ptr<ColumnSums> place) const;
  const std::shared_ptr<ColumnSums>& sums() const { return sums_; }

 private:
  friend class Tape;
  Value(Tensor tensor, int id) : tensor_(std::move(tensor)), slot_(id) {}
  Tensor tensor_;
  GradientSlot slot_;
  std::shared_ptr<Kept::Source> source_;  // if the tape may drop the tensor
  std::shared_ptr<ColumnSums> sums_;
};
using Values = std::vector<Value>;

class Tape {
 public:
  // Without `recording` the tape keeps nothing; evaluation and generation use that. With `remakes`
  // it does not keep tensors that can_remake declares.
  Tape(ops::Context& ctx, bool recording, GradientListener* listener = nullptr,
       bool remakes = false)
      : ctx_(ctx), recording_(recording), remakes_(recording && remakes), listener_(listener) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  ops::Context& context() const { return ctx_; }
  bool recording() const { return recording_; }

  // Whether what is computed is part of a training step, recorded or not: true with
  // MicroBatch::training.
  bool training() const { return training_; }
  void set_training(bool training) { training_ = training; }

  // Whether the weight gradients of operations that are recorded from now on may be deferred: true
  // on a new tape.
  void let_defer(bool defers) { defers_ = defers; }

  // Names what is recorded from now on, and its backward, for profilers. The name must outlive the
  // tape. Empty: nothing more is recorded.
  void begin_part(std::string_view name);

  // A value that no operation of this tape made: data, or what the blocks before returned. With
  // `needs_gradient` the tape computes its gradient, which take_gradient returns after backward.
  Value input(Tensor tensor, bool needs_gradient);

  // Computes the gradients of an operation's inputs from the gradient of its output, dy, and hands
  // them to add_gradient.
  using InputGradient = std::function<void(Tape&, const Tensor& dy)>;
  // Adds to the gradients of the operation's parameters. It may run later than InputGradient.
  using WeightGradient = std::function<void(Tape&, const Tensor& dy)>;

  // Records an operation that made y from `inputs` and `parameters`. A recording tape keeps the two
  // functions until backward if an input needs a gradient or a parameter trains; the first one only
  // in the one case, the second one only in the other. Of parameters that train and frozen ones
  // together, the gradients of the frozen are undefined. Either function may be empty.
  // `both_gradients`, if given, does the work of both in less time and with the same bits; it runs
  // where both are needed and weights are not deferred.
  Value record(Tensor y, const Values& inputs, InputGradient input_gradient,
               std::vector<const Parameter*> parameters = {}, WeightGradient weight_gradient = {},
               InputGradient both_gradients = {});

  // The same for an operation whose output is x itself, and which gives x a gradient in its own
  // way.
  Value record_same(const Value& x, InputGradient input_gradient);

  // Declares that `make` makes y again, for far fewer FLOPs than a matrix product. It follows the
  // record() of the operation that made y; y stays if that kept nothing. `make` may read weights
  // and what the gradient functions of that operation keep; it must not communicate. On a tape that
  // remakes, what reads y.kept() then calls `make`, once for each read. The backward makes a tensor
  // that deferred weight gradients will read before it runs the gradient functions of that
  // operation: afterwards `make` is not called, so neither weights nor the operation's inputs stay
  // for it.
  Value can_remake(Value y, Remake make);

  // Records an operation that made no value but gives its inputs gradients: a loss. backward()
  // calls `gradient` with an undefined dy, before the functions of all operations recorded earlier.
  // It adds to the gradients of those of `parameters` that train too, so these are never deferred.
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
  // gradients of operations that may defer them; otherwise each operation's weight gradient follows
  // its input gradient.
  void backward(const GradientSlots& outputs, Tensors gradients, bool defer_weights = false);
  void backward_weights();

 private:
  struct Node {
    int output;  // slot, or -1 for a loss
    InputGradient input_gradient;
    WeightGradient weight_gradient;
    InputGradient both_gradients;
    std::vector<const Parameter*> parameters;
    bool defers;
    std::string_view part;
    std::shared_ptr<Kept::Source> remade = {};  // what the operation made, if it can be made again
  };
  struct Slot {
    Tensor gradient;
    Work pending;  // communication in flight that still writes it
  };

  void run_weights(Node& node, const Tensor& dy);

  ops::Context& ctx_;
  bool recording_;
  bool remakes_;
  bool training_ = false;
  bool defers_ = true;
  std::string_view part_;  // that runs
  std::optional<ProfilerRange> range_;
  bool kept_ = false;  // the operation that was recorded last
  GradientListener* listener_;
  std::vector<Node> nodes_;
  std::vector<Slot> slots_;
  std::vector<std::pair<Node, Tensor>> deferred_;
};

}  // namespace trireme::nn
