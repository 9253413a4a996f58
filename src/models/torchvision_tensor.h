// How torchvision's models name what ours hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// The tensors of the ConvolutionNorm `ours`: of their convolution and their batch norm.
inline void add_convolution_norm(std::vector<TorchvisionTensor>& all, const std::string& ours,
                                 const std::string& convolution, const std::string& norm) {
  using Kind = TorchvisionTensor::Kind;
  all.push_back({convolution + ".weight", ours + ".convolution.weight", Kind::kConvolution});
  all.push_back({norm + ".weight", ours + ".norm.weight"});
  all.push_back({norm + ".bias", ours + ".norm.bias"});
  all.push_back({norm + ".running_mean", ours + ".norm.running", Kind::kStateRow, 0});
  all.push_back({norm + ".running_var", ours + ".norm.running", Kind::kStateRow, 1});
}

}  // namespace trireme::models
