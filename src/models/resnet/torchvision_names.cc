#include "models/resnet/torchvision_names.h"

#include <array>

#include <fmt/format.h>

#include "models/torchvision.h"

namespace trireme::models {

ForeignModel torchvision_model(const ResNetConfig& config) {
  static constexpr std::array kOurs = {"first", "second", "third"};
  ForeignModel model = torchvision_named("ResNet");
  std::vector<ForeignTensor>& all = model.tensors;
  const ResNetSizes sizes(config);
  add_convolution_norm(all, "stem", sizes.stem.convolution, "conv1", "bn1");
  int block = 0;
  for (std::size_t stage = 0; stage < sizes.stages.size(); ++stage) {
    for (std::size_t i = 0; i < sizes.stages[stage].size(); ++i, ++block) {
      const std::string ours = fmt::format("blocks.{}", block);
      const std::string theirs = fmt::format("layer{}.{}", stage + 1, i);
      const Residual& residual = sizes.stages[stage][i];
      for (std::size_t layer = 0; layer < residual.path.size(); ++layer) {
        add_convolution_norm(all, fmt::format("{}.{}", ours, kOurs.at(layer)), residual.path[layer],
                             fmt::format("{}.conv{}", theirs, layer + 1),
                             fmt::format("{}.bn{}", theirs, layer + 1));
      }
      if (!residual.shortcut) continue;
      add_convolution_norm(all, ours + ".shortcut", *residual.shortcut, theirs + ".downsample.0",
                           theirs + ".downsample.1");
    }
  }
  const std::int64_t channels = sizes.stages.back().back().path.back().out;
  all.push_back(same_tensor("fc.weight", "head.classifier.weight", {config.classes, channels}));
  all.push_back(same_tensor("fc.bias", "head.classifier.bias", {config.classes}));
  return model;
}

}  // namespace trireme::models
