// What convolutional networks are made of.
#pragma once

#include <memory>

#include "trireme/nn/pictures.h"

namespace trireme::models {

// A convolution without a bias, whose padding keeps the size of the picture but for the stride, its
// batch norm and the clamp that follows. Parameters NAME.convolution.weight, NAME.norm.weight and
// NAME.norm.bias, state NAME.norm.running.
class ConvolutionNorm {
 public:
  static constexpr float kEpsilon = 1e-5f;  // of the norm, as torchvision has it

  struct Sizes {
    std::int64_t in, out;
    std::int64_t kernel = 1, stride = 1, groups = 1;

    std::int64_t padding() const { return (kernel - 1) / 2; }
    // The side of the result for pictures of `side` x `side`.
    std::int64_t side_after(std::int64_t side) const {
      return (side + 2 * padding() - kernel) / stride + 1;
    }
    ops::ConvolutionShape shape(std::int64_t batch, std::int64_t side) const {
      return {batch, side, side, in, out, kernel, kernel, stride, padding(), groups};
    }
  };

  // Weights begin with the deviation of He et al. 2015 for the fan out over all groups, as
  // torchvision has it.
  // `replicas`: who share the norm's statistics (BuildContext::replicas), or null.
  ConvolutionNorm(const nn::LayerContext& context, nn::StateSet& states, const Sizes& sizes,
                  const ops::Clamp& clamp, const std::shared_ptr<Communicator>& replicas)
      : convolution_(context.child("convolution"),
                     {.in = sizes.in,
                      .out = sizes.out,
                      .kernel = sizes.kernel,
                      .stride = sizes.stride,
                      .padding = sizes.padding(),
                      .groups = sizes.groups,
                      .deviation = nn::Convolution::deviation_of(sizes.kernel, sizes.out, 1)}),
        norm_(context.child("norm"), states,
              {.channels = sizes.out, .epsilon = kEpsilon, .clamp = clamp, .replicas = replicas}) {}

  nn::Value forward(nn::Tape& tape, const nn::MicroBatch& batch, const nn::Value& x) const {
    return norm_.forward(tape, batch, convolution_, x);
  }
  // The same of what `before` makes of x.
  nn::Value forward_after(nn::Tape& tape, const nn::MicroBatch& batch,
                          const ConvolutionNorm& before, const nn::Value& x) const {
    return norm_.forward(tape, batch, convolution_, before.convolution_.forward(tape, x),
                         &before.norm_);
  }
  // The same with `residual` added before the clamp.
  nn::Value forward(nn::Tape& tape, const nn::MicroBatch& batch, const nn::Value& x,
                    const nn::Value& residual) const {
    return norm_.forward(tape, batch, convolution_.forward(tape, x), residual);
  }

 private:
  nn::Convolution convolution_;
  nn::BatchNorm norm_;
};

}  // namespace trireme::models
