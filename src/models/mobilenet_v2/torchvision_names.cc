#include "models/mobilenet_v2/torchvision_names.h"

#include <fmt/format.h>

#include "models/torchvision.h"

namespace trireme::models {

ForeignModel torchvision_model(const MobileNetV2Config& config) {
  ForeignModel model = torchvision_named("MobileNetV2");
  std::vector<ForeignTensor>& all = model.tensors;
  // A convolution, its norm and what follows are one sequence of theirs.
  const auto add_sequence = [&](const std::string& ours, const ConvolutionNorm::Sizes& sizes,
                                const std::string& sequence) {
    add_convolution_norm(all, ours, sizes, sequence + ".0", sequence + ".1");
  };
  const MobileNetV2Sizes sizes(config);
  add_sequence("stem", sizes.stem, "features.0");
  for (std::size_t i = 0; i < sizes.blocks.size(); ++i) {
    const InvertedResidual& block = sizes.blocks[i];
    const std::string ours = fmt::format("blocks.{}", i);
    const std::string theirs = fmt::format("features.{}.conv", i + 1);
    int at = 0;
    if (block.expands()) {
      add_sequence(ours + ".expand", block.expand(), fmt::format("{}.{}", theirs, at++));
    }
    add_sequence(ours + ".depthwise", block.depthwise(), fmt::format("{}.{}", theirs, at));
    add_convolution_norm(all, ours + ".project", block.project(),
                         fmt::format("{}.{}", theirs, at + 1),
                         fmt::format("{}.{}", theirs, at + 2));
  }
  add_sequence("head", sizes.head, fmt::format("features.{}", sizes.blocks.size() + 1));
  all.push_back(same_tensor("classifier.1.weight", "head.classifier.weight",
                            {config.classes, sizes.head.out}));
  all.push_back(same_tensor("classifier.1.bias", "head.classifier.bias", {config.classes}));
  return model;
}

}  // namespace trireme::models
