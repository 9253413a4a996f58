// Stands in for cuDNN in a build without it: our own kernels and matrix products take its place.
#include "trireme/base/error.h"

#include "ops/attention_engine.h"
#include "ops/convolution_engine.h"

namespace trireme::ops {

std::shared_ptr<AttentionEngine> make_cudnn_attention(const cuda::DeviceProperties&) {
  return make_absent_attention("cuDNN", "not in this build");
}

std::shared_ptr<AttentionEngine> make_cudnn_attention_for(const cuda::DeviceProperties&,
                                                          const std::string&) {
  throw CudaError("this program was built without cuDNN");
}

std::shared_ptr<ConvolutionEngine> make_cudnn_convolution(const cuda::DeviceProperties&, bool) {
  return nullptr;
}

std::shared_ptr<ConvolutionEngine> make_cudnn_convolution_for(const cuda::DeviceProperties&,
                                                              const std::string&, bool) {
  throw CudaError("this program was built without cuDNN");
}

}  // namespace trireme::ops
