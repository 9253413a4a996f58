// MobileNetV2 (Sandler et al. 2018): a stem, inverted residuals, and a head that classifies.
#pragma once

#include <string_view>
#include <vector>

#include "models/convolutional.h"

namespace trireme::models {

// The published model halves a picture five times, first in its stem, and of 32 pixels would leave
// one. The stem for CIFAR takes stride 1, and so does the first stage that would halve the picture,
// as is customary (github.com/kuangliu/pytorch-cifar, whose model has ReLU in the place of ReLU6
// and a convolution on the residual path of three blocks): the head then sees 4 x 4 pixels.
struct MobileNetV2Config : ConvolutionalConfig {
  // Blocks in a row: the first of them has the stride, and widens the picture to `channels`.
  struct Stage {
    std::int64_t expansion, channels, blocks, stride;
  };

  // Multiplies the channels of all layers but the last, which never has less than 1,280. Each is a
  // multiple of 8, as in the published code.
  double width_multiple = 1.0;
  double dropout = 0.2;  // before the classifier
  std::vector<Stage> stages = published_stages();

  static std::vector<Stage> published_stages();  // table 2 of the paper
};

// One inverted residual: a 1 x 1 convolution that expands the channels, a depthwise one, and one
// that projects them to fewer.
struct InvertedResidual {
  std::int64_t in, hidden, out, stride;
  std::int64_t side;  // of its input

  bool expands() const { return hidden != in; }
  bool adds() const { return stride == 1 && in == out; }  // its input to its output
  ConvolutionNorm::Sizes expand() const { return {in, hidden}; }
  ConvolutionNorm::Sizes depthwise() const { return {hidden, hidden, 3, stride, hidden}; }
  ConvolutionNorm::Sizes project() const { return {hidden, out}; }
};

// All sizes that follow from a configuration.
struct MobileNetV2Sizes {
  explicit MobileNetV2Sizes(const MobileNetV2Config& config);

  ConvolutionNorm::Sizes stem;
  std::vector<InvertedResidual> blocks;
  ConvolutionNorm::Sizes head;  // its last convolution
  std::int64_t last_side;       // of the head's input
};

// The preset of that name. Throws ConfigError for an unknown one; the message lists the known.
MobileNetV2Config mobilenet_v2_preset(std::string_view name);
std::vector<std::string_view> mobilenet_v2_preset_names();

ConvolutionalNetwork mobilenet_v2_network(const MobileNetV2Config& config);
// The blocks are the stem, one for each inverted residual, and the head.
nn::ModelPlan mobilenet_v2_plan(const MobileNetV2Config& config);

// The same as the registry gives it.
Model mobilenet_v2_model(const MobileNetV2Config& config);

}  // namespace trireme::models
