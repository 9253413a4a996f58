// The tensors of a MobileNetV2 under the names of torchvision.models.mobilenet_v2.
#pragma once

#include "trireme/models/foreign.h"

#include "models/mobilenet_v2/mobilenet_v2.h"

namespace trireme::models {

// Every tensor of their state_dict, in its order, but for the counts num_batches_tracked, which
// nothing reads.
ForeignModel torchvision_model(const MobileNetV2Config& config);

}  // namespace trireme::models
