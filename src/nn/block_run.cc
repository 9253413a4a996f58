#include "trireme/nn/block_run.h"

namespace trireme::nn {

Tensors BlockRun::forward(Tensors in) {
  Values x;
  for (Tensor& tensor : in) {
    x.push_back(tape_.input(std::move(tensor), true));
    inputs_.push_back(x.back().slot());
  }
  for (const auto& block : blocks_) x = block->forward(tape_, batch_, std::move(x));
  Tensors out;
  for (const Value& value : x) {
    out.push_back(value.tensor());
    outputs_.push_back(value.slot());
  }
  return out;
}

Tensors BlockRun::backward(Tensors dy, bool defer_weights) {
  tape_.backward(outputs_, std::move(dy), defer_weights);
  Tensors dx;
  for (const GradientSlot& input : inputs_) dx.push_back(tape_.take_gradient(input));
  return dx;
}

}  // namespace trireme::nn
