#include "models/mobilenet_v2/mobilenet_v2.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "models/keys.h"

namespace trireme::models {
namespace {

constexpr std::int64_t kStemChannels = 32, kHeadChannels = 1280;
constexpr float kClassifierDeviation = 0.01f;  // as torchvision has it

// Channels times the width multiple: a multiple of 8 that is at least 90 % of the product
// (_make_divisible of the paper's published code).
std::int64_t scaled(std::int64_t channels, double multiple) {
  constexpr std::int64_t kStep = 8;
  const double wanted = static_cast<double>(channels) * multiple;
  const std::int64_t nearest =
      std::max(kStep, static_cast<std::int64_t>(wanted + kStep / 2.0) / kStep * kStep);
  return static_cast<double>(nearest) < 0.9 * wanted ? nearest + kStep : nearest;
}

class InvertedResidualBlock : public nn::Block {
 public:
  InvertedResidualBlock(const ConvolutionalConfig& config, const InvertedResidual& sizes,
                        nn::BuildContext& build, const std::string& name)
      : adds_(sizes.adds()) {
    const nn::LayerContext context = layer_of(parameters_, build, name);
    const auto replicas = sharing_norms(config, build);
    if (sizes.expands()) {
      expand_.emplace(context.child("expand"), states_, sizes.expand(), ops::kRelu6, replicas);
    }
    depthwise_.emplace(context.child("depthwise"), states_, sizes.depthwise(), ops::kRelu6,
                       replicas);
    project_.emplace(context.child("project"), states_, sizes.project(), ops::kNoClamp, replicas);
  }

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    // (B, H, W, C)
    const nn::Value x = expand_ ? depthwise_->forward_after(tape, batch, *expand_, in[0])
                                : depthwise_->forward(tape, batch, in[0]);
    if (adds_) return {project_->forward(tape, batch, x, in[0])};
    return {project_->forward(tape, batch, x)};
  }

 private:
  bool adds_;
  std::optional<ConvolutionNorm> expand_, depthwise_, project_;
};

ConvolutionalNetwork::Block block_of(const ConvolutionalConfig& config,
                                     const InvertedResidual& sizes, const std::string& name) {
  const std::int64_t side = sizes.depthwise().side_after(sizes.side);
  ConvolutionalNetwork::Block block{name, {}, side, sizes.out, [=](nn::BuildContext& build) {
                                      return std::make_unique<InvertedResidualBlock>(config, sizes,
                                                                                     build, name);
                                    }};
  if (sizes.expands()) {
    block.layers.push_back({sizes.expand(), sizes.side, true, false, name + ".expand"});
  }
  block.layers.push_back({sizes.depthwise(), sizes.side, true, false, name + ".depthwise"});
  block.layers.push_back({sizes.project(), side, false, sizes.adds(), name + ".project"});
  return block;
}

}  // namespace

std::vector<MobileNetV2Config::Stage> MobileNetV2Config::published_stages() {
  return {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
          {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
}

MobileNetV2Sizes::MobileNetV2Sizes(const MobileNetV2Config& config) {
  const bool small = config.stem == MobileNetV2Config::Stem::kCifar;
  stem = {nn::kColours, scaled(kStemChannels, config.width_multiple), 3, small ? 1 : 2};
  std::int64_t channels = stem.out, side = stem.side_after(config.image);
  bool first_to_shrink = true;
  for (const MobileNetV2Config::Stage& stage : config.stages) {
    const std::int64_t out = scaled(stage.channels, config.width_multiple);
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      std::int64_t stride = i == 0 ? stage.stride : 1;
      if (stride > 1 && std::exchange(first_to_shrink, false) && small) stride = 1;
      blocks.push_back({channels, channels * stage.expansion, out, stride, side});
      side = blocks.back().depthwise().side_after(side);
      channels = out;
    }
  }
  head = {channels, scaled(kHeadChannels, std::max(1.0, config.width_multiple))};
  last_side = side;
}

MobileNetV2Config mobilenet_v2_preset(std::string_view name) {
  MobileNetV2Config config;
  if (name == "mobilenet_v2") return config;
  if (name != "mobilenet_v2-cifar") refuse_preset(name, mobilenet_v2_preset_names());
  config.classes = 10;
  config.image = 32;
  config.stem = MobileNetV2Config::Stem::kCifar;
  config.dropout = 0.0;
  return config;
}

std::vector<std::string_view> mobilenet_v2_preset_names() {
  return {"mobilenet_v2", "mobilenet_v2-cifar"};
}

ConvolutionalNetwork mobilenet_v2_network(const MobileNetV2Config& config) {
  const MobileNetV2Sizes sizes(config);
  ConvolutionalNetwork network{
      .name = fmt::format("MobileNetV2, width x {}", config.width_multiple),
      .clamp = ops::kRelu6,
      .stem = {sizes.stem},
      .blocks = {},
      .last = sizes.head,
      .dropout = config.dropout,
      .classifier = {kClassifierDeviation}};
  for (std::size_t i = 0; i < sizes.blocks.size(); ++i) {
    network.blocks.push_back(block_of(config, sizes.blocks[i], fmt::format("blocks.{}", i)));
  }
  return network;
}

nn::ModelPlan mobilenet_v2_plan(const MobileNetV2Config& config) {
  return plan_of(config, mobilenet_v2_network(config));
}

}  // namespace trireme::models
