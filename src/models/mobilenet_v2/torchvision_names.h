// The tensors of a MobileNetV2 under the names of torchvision.models.mobilenet_v2.
#pragma once

#include <vector>

#include "models/mobilenet_v2/mobilenet_v2.h"
#include "models/torchvision_tensor.h"

namespace trireme::models {

// Every tensor of their state_dict, in its order, but for the counts num_batches_tracked, which
// nothing reads. With these, every parameter and every row of a state of ours occurs once.
std::vector<TorchvisionTensor> torchvision_tensors(const MobileNetV2Config& config);

}  // namespace trireme::models
