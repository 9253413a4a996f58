// The tensors of a ResNet under the names of torchvision.models.resnet18 and its relatives.
#pragma once

#include "trireme/models/foreign.h"

#include "models/resnet/resnet.h"

namespace trireme::models {

// Every tensor of their state_dict, in its order, but for the counts num_batches_tracked, which
// nothing reads.
ForeignModel torchvision_model(const ResNetConfig& config);

}  // namespace trireme::models
