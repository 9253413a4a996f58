// The tensors of a MobileNetV2 under the names of torchvision.models.mobilenet_v2.
#pragma once

#include <string>
#include <vector>

#include "models/mobilenet_v2/mobilenet_v2.h"

namespace trireme::models {

struct TorchvisionTensor {
  enum class Kind {
    kSame,         // our parameter of the same shape
    kConvolution,  // our parameter (out, height, width, in), theirs (out, in, height, width)
    kStateRow      // a row of our state
  };
  std::string name;  // in their state_dict: "features.1.conv.0.0.weight"
  std::string ours;  // "blocks.0.depthwise.convolution.weight"
  Kind kind = Kind::kSame;
  std::int64_t row = 0;  // kStateRow: which one
};

// Every tensor of their state_dict, in its order, but for the counts num_batches_tracked, which
// nothing reads. With these, every parameter and every row of a state of ours occurs once.
std::vector<TorchvisionTensor> torchvision_tensors(const MobileNetV2Config& config);

}  // namespace trireme::models
