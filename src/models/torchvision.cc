#include "models/torchvision.h"

namespace trireme::models {

ForeignModel torchvision_named(const std::string& name) {
  return {
      .format = name + " as torchvision has it", .tensors = {}, .unused = {".num_batches_tracked"}};
}

void add_convolution_norm(std::vector<ForeignTensor>& all, const std::string& ours,
                          const ConvolutionNorm::Sizes& sizes, const std::string& convolution,
                          const std::string& norm) {
  all.push_back(
      convolution_tensor(convolution + ".weight", ours + ".convolution.weight",
                         {sizes.out, sizes.kernel, sizes.kernel, sizes.in / sizes.groups}));
  all.push_back(same_tensor(norm + ".weight", ours + ".norm.weight", {sizes.out}));
  all.push_back(same_tensor(norm + ".bias", ours + ".norm.bias", {sizes.out}));
  const Shape running = {2, sizes.out};
  all.push_back(state_row(norm + ".running_mean", ours + ".norm.running", running, 0));
  all.push_back(state_row(norm + ".running_var", ours + ".norm.running", running, 1));
}

}  // namespace trireme::models
