#include "models/resnet/torchvision_names.h"

#include <array>

#include <fmt/format.h>

namespace trireme::models {

std::vector<TorchvisionTensor> torchvision_tensors(const ResNetConfig& config) {
  static constexpr std::array kOurs = {"first", "second", "third"};
  std::vector<TorchvisionTensor> all;
  add_convolution_norm(all, "stem", "conv1", "bn1");
  const ResNetSizes sizes(config);
  int block = 0;
  for (std::size_t stage = 0; stage < sizes.stages.size(); ++stage) {
    for (std::size_t i = 0; i < sizes.stages[stage].size(); ++i, ++block) {
      const std::string ours = fmt::format("blocks.{}", block);
      const std::string theirs = fmt::format("layer{}.{}", stage + 1, i);
      const Residual& residual = sizes.stages[stage][i];
      for (std::size_t layer = 0; layer < residual.path.size(); ++layer) {
        add_convolution_norm(all, fmt::format("{}.{}", ours, kOurs.at(layer)),
                             fmt::format("{}.conv{}", theirs, layer + 1),
                             fmt::format("{}.bn{}", theirs, layer + 1));
      }
      if (!residual.shortcut) continue;
      add_convolution_norm(all, ours + ".shortcut", theirs + ".downsample.0",
                           theirs + ".downsample.1");
    }
  }
  all.push_back({"fc.weight", "head.classifier.weight"});
  all.push_back({"fc.bias", "head.classifier.bias"});
  return all;
}

}  // namespace trireme::models
