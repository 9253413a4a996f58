#include "trireme/nn/tape.h"

#include <algorithm>
#include <utility>

#include "trireme/ops/elementwise.h"

namespace trireme::nn {

void Kept::Source::settle(ops::Context& ctx) {
  if (!made.defined()) made = make(ctx);
  make = {};
}

Kept Value::kept() const {
  Kept kept;
  if (source_) {
    kept.source_ = source_;
  } else {
    kept.tensor_ = tensor_;
  }
  return kept;
}

Value Value::with_sums(std::shared_ptr<ColumnSums> place) const {
  Value same = *this;
  same.sums_ = std::move(place);
  return same;
}

namespace {

void leave_trained(std::vector<const Parameter*>& parameters) {
  std::erase_if(parameters, [](const Parameter* parameter) { return !parameter->trains(); });
}

}  // namespace

void GradientListener::prepare(const FlatGroup&) {}

Value Tape::input(Tensor tensor, bool needs_gradient) {
  if (!recording_ || !needs_gradient) return {std::move(tensor), -1};
  slots_.emplace_back();
  return {std::move(tensor), static_cast<int>(slots_.size()) - 1};
}

Value Tape::record(Tensor y, const Values& inputs, InputGradient input_gradient,
                   std::vector<const Parameter*> parameters, WeightGradient weight_gradient,
                   InputGradient both_gradients) {
  const bool wanted = std::any_of(inputs.begin(), inputs.end(),
                                  [](const Value& value) { return value.needs_gradient(); });
  leave_trained(parameters);
  kept_ = recording_ && (wanted || !parameters.empty());
  if (!kept_) return {std::move(y), -1};
  if (!wanted) input_gradient = both_gradients = {};
  if (parameters.empty()) weight_gradient = both_gradients = {};
  Value value = input(std::move(y), true);
  nodes_.push_back({value.slot_.id_, std::move(input_gradient), std::move(weight_gradient),
                    std::move(both_gradients), std::move(parameters), defers_, part_});
  return value;
}

void Tape::begin_part(std::string_view name) {
  if (name == part_) return;
  range_.reset();
  if (!name.empty()) range_.emplace(name);
  part_ = name;
}

Value Tape::record_same(const Value& x, InputGradient input_gradient) {
  Value y = record(x.tensor(), {x}, std::move(input_gradient));
  y.source_ = x.source_;
  return y;
}

Value Tape::can_remake(Value y, Remake make) {
  if (!remakes_ || !kept_) return y;
  y.source_ = std::make_shared<Kept::Source>(Kept::Source{std::move(make), {}});
  nodes_.back().remade = y.source_;
  return y;
}

void Tape::record_loss(InputGradient gradient, std::vector<const Parameter*> parameters) {
  leave_trained(parameters);
  if (recording_)
    nodes_.push_back({-1, std::move(gradient), {}, {}, std::move(parameters), false, part_});
}

void Tape::add_gradient(GradientSlot to, Tensor gradient, Work pending) {
  if (to.id_ < 0) return;
  Slot& slot = slots_[static_cast<std::size_t>(to.id_)];
  if (!slot.gradient.defined()) {
    slot = {std::move(gradient), std::move(pending)};
    return;
  }
  const Tensor first = take_gradient(to);
  pending.wait_on(ctx_.stream);
  // Adds in place unless other values share the gradient (the inputs of a sum share theirs).
  const Tensor sum = first.shared() ? ctx_.allocate(first.shape(), first.dtype()) : first;
  ops::add(ctx_, first, gradient, sum);
  slot.gradient = sum;
}

Tensor Tape::writable(const Tensor& dy) const {
  if (!dy.shared()) return dy;
  const Tensor copy = ctx_.allocate(dy.shape(), dy.dtype());
  ops::cast(ctx_, dy, copy);
  return copy;
}

Tensor Tape::take_gradient(GradientSlot from) {
  if (from.id_ < 0) return {};
  Slot slot = std::exchange(slots_[static_cast<std::size_t>(from.id_)], {});
  slot.pending.wait_on(ctx_.stream);
  return std::move(slot.gradient);
}

void Tape::backward(const GradientSlots& outputs, Tensors gradients, bool defer_weights) {
  TRIREME_CHECK(outputs.size() == gradients.size(), "one gradient for each output");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    add_gradient(outputs[i], std::move(gradients[i]));
  }
  // Nodes are dropped when they are done, which frees what they saved for the rest of the pass.
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    begin_part(node.part);
    // Only deferred weight gradients can still read what the operation made.
    if (node.remade && node.remade.use_count() > 1) node.remade->settle(ctx_);
    node.remade = {};
    Tensor dy;
    if (node.output >= 0) {
      dy = take_gradient(GradientSlot(node.output));
      // Nothing used the value. Its parameters still report a contribution, with nothing added.
      if (!dy.defined()) {
        run_weights(node, dy);
        continue;
      }
    }
    const bool defers = defer_weights && node.defers;
    if (node.both_gradients && !defers) {
      node.both_gradients(*this, dy);
      node.weight_gradient = {};
    } else if (node.input_gradient) {
      node.input_gradient(*this, dy);
    }
    node.input_gradient = node.both_gradients = {};
    if (defers && node.weight_gradient) {
      deferred_.emplace_back(std::move(node), dy);
    } else {
      run_weights(node, dy);
    }
  }
  begin_part({});
}

void Tape::backward_weights() {
  for (auto& [node, dy] : deferred_) {
    begin_part(node.part);
    run_weights(node, dy);
    node = {};  // frees what it has kept
    dy = {};
  }
  deferred_.clear();
  begin_part({});
}

void Tape::run_weights(Node& node, const Tensor& dy) {
  if (node.weight_gradient && dy.defined()) node.weight_gradient(*this, dy);
  if (listener_ == nullptr) return;
  for (const Parameter* parameter : node.parameters) listener_->contributed(*parameter);
}

}  // namespace trireme::nn
