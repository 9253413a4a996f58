// ResNet (He et al. 2016): a stem, residual blocks, and a head that classifies, whose weights and
// biases are uniform within 1 / sqrt(its inputs) at first.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "models/convolutional.h"

namespace trireme::models {

// The published stem is a convolution of 7 x 7 pixels with stride 2 and max pooling; that for CIFAR
// a convolution of 3 x 3, which keeps the size.
struct ResNetConfig : ConvolutionalConfig {
  bool bottlenecks = false;  // blocks of three layers instead of two
  std::int64_t width = 64;   // channels of the first stage; each stage doubles
  std::vector<std::int64_t> stages = {2, 2, 2, 2};  // blocks of each

  int depth() const;  // convolutions on the way through, and the classifier: 18
};

// The published ResNet of that depth: 18, 34, 50. Throws ConfigError for another.
ResNetConfig resnet_of_depth(int depth);

// One residual block, as torchvision has it: the 3 x 3 convolution of a bottleneck has the stride,
// not the first one ("v1.5").
struct Residual {
  std::vector<ConvolutionNorm::Sizes> path;
  std::optional<ConvolutionNorm::Sizes> shortcut;  // where the size changes; else its input
  std::int64_t side;                               // of its input

  std::int64_t side_after() const;
};

// All sizes that follow from a configuration.
struct ResNetSizes {
  explicit ResNetSizes(const ResNetConfig& config);

  StemSizes stem;
  std::vector<std::vector<Residual>> stages;
};

// The preset of that name. Throws ConfigError for an unknown one; the message lists the known.
ResNetConfig resnet_preset(std::string_view name);
std::vector<std::string_view> resnet_preset_names();

ConvolutionalNetwork resnet_network(const ResNetConfig& config);
// The blocks are the stem, one for each residual block, and the head.
nn::ModelPlan resnet_plan(const ResNetConfig& config);

// The same as the registry gives it.
Model resnet_model(const ResNetConfig& config);

}  // namespace trireme::models
