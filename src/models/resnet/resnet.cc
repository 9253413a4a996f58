#include "models/resnet/resnet.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "models/keys.h"

namespace trireme::models {
namespace {

constexpr std::int64_t kExpansion = 4;  // of a bottleneck's last layer
constexpr std::array<std::string_view, 3> kLayers = {"first", "second", "third"};

struct ResNetPreset {
  std::string_view name;
  int depth;
  bool cifar;
};
constexpr std::array<ResNetPreset, 6> kResNetPresets = {{{"resnet18", 18, false},
                                                         {"resnet34", 34, false},
                                                         {"resnet50", 50, false},
                                                         {"resnet18-cifar", 18, true},
                                                         {"resnet34-cifar", 34, true},
                                                         {"resnet50-cifar", 50, true}}};

Residual residual_of(const ResNetConfig& config, std::int64_t in, std::int64_t width,
                     std::int64_t stride, std::int64_t side) {
  Residual block{.path = {{in, width, 3, stride}, {width, width, 3}}, .shortcut = {}, .side = side};
  if (config.bottlenecks) {
    block.path = {{in, width}, {width, width, 3, stride}, {width, width * kExpansion}};
  }
  const std::int64_t out = block.path.back().out;
  if (stride != 1 || in != out) block.shortcut = ConvolutionNorm::Sizes{in, out, 1, stride};
  return block;
}

class ResidualBlock : public nn::Block {
 public:
  ResidualBlock(const ConvolutionalConfig& config, const Residual& sizes, nn::BuildContext& build,
                const std::string& name) {
    const nn::LayerContext context = layer_of(parameters_, build, name);
    const auto replicas = sharing_norms(config, build);
    for (std::size_t i = 0; i < sizes.path.size(); ++i) {
      path_.emplace_back(context.child(std::string(kLayers.at(i))), states_, sizes.path[i],
                         ops::kRelu, replicas);
    }
    if (!sizes.shortcut) return;
    shortcut_.emplace(context.child("shortcut"), states_, *sizes.shortcut, ops::kNoClamp, replicas);
  }

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    nn::Value x = in[0];  // (B, H, W, C)
    for (std::size_t i = 0; i + 1 < path_.size(); ++i) x = path_[i].forward(tape, batch, x);
    const nn::Value other = shortcut_ ? shortcut_->forward(tape, batch, in[0]) : in[0];
    return {path_.back().forward(tape, batch, x, other)};
  }

 private:
  std::vector<ConvolutionNorm> path_;
  std::optional<ConvolutionNorm> shortcut_;
};

ConvolutionalNetwork::Block block_of(const ConvolutionalConfig& config, const Residual& sizes,
                                     const std::string& name) {
  ConvolutionalNetwork::Block block{
      name, {}, sizes.side_after(), sizes.path.back().out, [=](nn::BuildContext& build) {
        return std::make_unique<ResidualBlock>(config, sizes, build, name);
      }};
  std::int64_t side = sizes.side;
  for (std::size_t i = 0; i < sizes.path.size(); ++i) {
    const ConvolutionNorm::Sizes& layer = sizes.path[i];
    block.layers.push_back({layer, side, true, false, fmt::format("{}.{}", name, kLayers.at(i))});
    side = layer.side_after(side);
  }
  block.layers.back().adds = true;
  if (sizes.shortcut) {
    block.layers.push_back({*sizes.shortcut, sizes.side, false, false, name + ".shortcut", true});
  }
  return block;
}

}  // namespace

int ResNetConfig::depth() const {
  std::int64_t blocks = 0;
  for (const std::int64_t stage : stages) blocks += stage;
  return static_cast<int>(2 + blocks * (bottlenecks ? 3 : 2));
}

ResNetConfig resnet_of_depth(int depth) {
  ResNetConfig config;
  config.bottlenecks = depth >= 50;
  if (depth != 18) config.stages = {3, 4, 6, 3};
  if (config.depth() == depth) return config;
  throw ConfigError(
      fmt::format("model.depth is {}, but resnet is 18, 34 or 50 layers deep", depth));
}

std::int64_t Residual::side_after() const {
  std::int64_t after = side;
  for (const ConvolutionNorm::Sizes& layer : path) after = layer.side_after(after);
  return after;
}

ResNetSizes::ResNetSizes(const ResNetConfig& config)
    : stem{{nn::kColours, config.width, 7, 2}, true} {
  if (config.stem == ResNetConfig::Stem::kCifar) stem = {{nn::kColours, config.width, 3}, false};
  std::int64_t side = stem.side_after(config.image), channels = config.width, width = config.width;
  for (std::size_t stage = 0; stage < config.stages.size(); ++stage, width *= 2) {
    std::vector<Residual>& blocks = stages.emplace_back();
    for (std::int64_t i = 0; i < config.stages[stage]; ++i) {
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks.push_back(residual_of(config, channels, width, stride, side));
      side = blocks.back().side_after();
      channels = blocks.back().path.back().out;
    }
  }
}

ResNetConfig resnet_preset(std::string_view name) {
  for (const ResNetPreset& preset : kResNetPresets) {
    if (preset.name != name) continue;
    ResNetConfig config = resnet_of_depth(preset.depth);
    if (preset.cifar) {
      config.classes = 10;
      config.image = 32;
      config.stem = ResNetConfig::Stem::kCifar;
    }
    return config;
  }
  refuse_preset(name, resnet_preset_names());
}

std::vector<std::string_view> resnet_preset_names() {
  std::vector<std::string_view> names;
  for (const ResNetPreset& preset : kResNetPresets) names.push_back(preset.name);
  return names;
}

ConvolutionalNetwork resnet_network(const ResNetConfig& config) {
  const ResNetSizes sizes(config);
  const std::int64_t channels = sizes.stages.back().back().path.back().out;
  // What torch.nn.Linear does, which torchvision leaves as it is.
  const auto initial =
      nn::Initializer::uniform(static_cast<float>(1.0 / std::sqrt(static_cast<double>(channels))));
  ConvolutionalNetwork network{.name = fmt::format("ResNet-{}", config.depth()),
                               .clamp = ops::kRelu,
                               .stem = sizes.stem,
                               .blocks = {},
                               .classifier = {initial, initial}};
  for (const std::vector<Residual>& stage : sizes.stages) {
    for (const Residual& block : stage) {
      const std::string name = fmt::format("blocks.{}", network.blocks.size());
      network.blocks.push_back(block_of(config, block, name));
    }
  }
  return network;
}

nn::ModelPlan resnet_plan(const ResNetConfig& config) {
  return plan_of(config, resnet_network(config));
}

}  // namespace trireme::models
