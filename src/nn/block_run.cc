#include "trireme/nn/block_run.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace trireme::nn {
namespace {

// The name of a block is that of its first parameters.
std::string_view name_of(const Block& block) {
  const auto& groups = block.parameters().groups();
  return groups.empty() ? "block" : std::string_view(groups.front()->name());
}

}  // namespace

Tensors BlockRun::forward(Tensors in) {
  if (keep_ != Keep::kInput) return record(std::move(in));
  input_ = in;
  // Nothing needs the output of a loss, and its backward makes the loss.
  if (blocks_.back()->is_loss()) return {};
  BlockRun once(tape_.context(), blocks_, batch_, Keep::kNothing);
  return once.forward(std::move(in));
}

Tensors BlockRun::record(Tensors in) {
  if (batch_.empty()) {
    for (const auto& block : blocks_) block->forward_empty(tape_.context());
    return {};
  }
  tape_.set_training(batch_.training);
  Values x;
  for (Tensor& tensor : in) {
    x.push_back(tape_.input(std::move(tensor), input_gradient_));
    if (input_gradient_) inputs_.push_back(x.back().slot());
  }
  for (const auto& block : blocks_) {
    tape_.let_defer(!block->is_loss());
    tape_.begin_part(name_of(*block));
    x = block->forward(tape_, batch_, std::move(x));
  }
  tape_.begin_part({});
  Tensors out;
  for (const Value& value : x) {
    out.push_back(value.tensor());
    outputs_.push_back(value.slot());
  }
  return out;
}

BlockSpan BlockRun::backward_blocks() const {
  if (input_gradient_) return blocks_;
  const auto trains = [](const std::unique_ptr<Block>& block) {
    return std::ranges::any_of(block->parameters().parameters(),
                               [](const auto& parameter) { return parameter->trains(); });
  };
  const auto first = std::ranges::find_if(blocks_, trains);
  return {first, blocks_.end()};
}

Tensors BlockRun::backward(Tensors dy, bool defer_weights) {
  if (keep_ == Keep::kInput) record(std::exchange(input_, {}));
  if (batch_.empty()) {
    for (const auto& block : std::views::reverse(backward_blocks())) {
      block->backward_empty(tape_.context());
    }
    return {};
  }
  if (!defer_weights) prepare_gradients(/*of_losses=*/false);
  prepare_gradients(/*of_losses=*/true);
  tape_.backward(outputs_, std::move(dy), defer_weights);
  Tensors dx;
  for (const GradientSlot& input : inputs_) dx.push_back(tape_.take_gradient(input));
  return dx;
}

void BlockRun::backward_weights() {
  if (batch_.empty()) return;
  prepare_gradients(/*of_losses=*/false);
  tape_.backward_weights();
}

// Deferred weight gradients are prepared when they are computed, so that they need no memory
// before.
void BlockRun::prepare_gradients(bool of_losses) const {
  if (listener_ == nullptr) return;
  for (const auto& block : blocks_) {
    if (block->is_loss() != of_losses) continue;
    for (const auto& group : block->parameters().groups()) listener_->prepare(*group);
    for (const auto& group : block->parameters().uses_apart()) listener_->prepare(*group);
  }
}

}  // namespace trireme::nn
