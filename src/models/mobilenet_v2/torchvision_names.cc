#include "models/mobilenet_v2/torchvision_names.h"

#include <fmt/format.h>

namespace trireme::models {

std::vector<TorchvisionTensor> torchvision_tensors(const MobileNetV2Config& config) {
  std::vector<TorchvisionTensor> all;
  // A convolution, its norm and what follows are one sequence of theirs.
  const auto add_sequence = [&](const std::string& ours, const std::string& sequence) {
    add_convolution_norm(all, ours, sequence + ".0", sequence + ".1");
  };
  const MobileNetV2Sizes sizes(config);
  add_sequence("stem", "features.0");
  for (std::size_t i = 0; i < sizes.blocks.size(); ++i) {
    const std::string ours = fmt::format("blocks.{}", i);
    const std::string theirs = fmt::format("features.{}.conv", i + 1);
    int at = 0;
    if (sizes.blocks[i].expands()) {
      add_sequence(ours + ".expand", fmt::format("{}.{}", theirs, at++));
    }
    add_sequence(ours + ".depthwise", fmt::format("{}.{}", theirs, at));
    add_convolution_norm(all, ours + ".project", fmt::format("{}.{}", theirs, at + 1),
                         fmt::format("{}.{}", theirs, at + 2));
  }
  add_sequence("head", fmt::format("features.{}", sizes.blocks.size() + 1));
  all.push_back({"classifier.1.weight", "head.classifier.weight"});
  all.push_back({"classifier.1.bias", "head.classifier.bias"});
  return all;
}

}  // namespace trireme::models
