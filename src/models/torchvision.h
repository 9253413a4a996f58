// What the names of torchvision's models have in common. There is no file that describes such a
// model: the keys model.* do. The weight of a convolution is (output channels, height, width, input
// channels of a group) here, and (output channels, input channels of a group, height, width) there.
#pragma once

#include <string>
#include <vector>

#include "trireme/models/foreign.h"

#include "models/convolution_norm.h"

namespace trireme::models {

// A model of torchvision, without its tensors.
ForeignModel torchvision_named(const std::string& name);

// The tensors of a convolution and its norm, in the order of their state_dict, without
// num_batches_tracked. `ours` is the layer's name; `convolution` and `norm` are theirs.
void add_convolution_norm(std::vector<ForeignTensor>& all, const std::string& ours,
                          const ConvolutionNorm::Sizes& sizes, const std::string& convolution,
                          const std::string& norm);

}  // namespace trireme::models
