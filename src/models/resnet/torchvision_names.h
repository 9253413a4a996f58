// The tensors of a ResNet under the names of torchvision.models.resnet18 and its relatives.
#pragma once

#include <vector>

#include "models/resnet/resnet.h"
#include "models/torchvision_tensor.h"

namespace trireme::models {

// Every tensor of their state_dict, in its order, but for the counts num_batches_tracked, which
// nothing reads. With these, every parameter and every row of a state of ours occurs once.
std::vector<TorchvisionTensor> torchvision_tensors(const ResNetConfig& config);

}  // namespace trireme::models
