// A library behind ops::attention and ops::attention_backward, for the shapes that it takes.
#pragma once

#include <memory>
#include <string>

#include "trireme/ops/attention.h"
#include "trireme/tensor/cuda.h"

namespace trireme::ops {

// Everything that decides whether and how a library computes attention.
struct AttentionKind {
  AttentionShape shape;
  DType dtype = DType::kBF16;    // of qkv, out and their gradients
  bool masks_documents = false;  // a first_key is given

  auto operator<=>(const AttentionKind&) const = default;
};

// Serves one call at a time.
class AttentionEngine {
 public:
  virtual ~AttentionEngine() = default;

  // Empty where forward and backward of this kind run, otherwise why not, in a few words. The first
  // question for a kind may take seconds: it compiles.
  virtual const std::string& why_not(const AttentionKind& kind) = 0;
  // As ops::attention and ops::attention_backward, of a kind for which nothing speaks against it.
  virtual void forward(Context& ctx, const AttentionKind& kind, const Tensor& qkv,
                       const Tensor& out, const Tensor& log_sum) = 0;
  virtual void backward(Context& ctx, const AttentionKind& kind, const Tensor& qkv,
                        const Tensor& out, const Tensor& log_sum, const Tensor& dout,
                        const Tensor& dqkv) = 0;
  virtual std::string_view description() const = 0;  // "cuDNN 9.19.0"
};

// cuDNN's fused attention on the calling thread's device, whose properties these are;
// deterministic. Nothing where this build has no cuDNN, or where cuDNN or CUDA's shared runtime
// (libcudart) does not open on this machine.
std::shared_ptr<AttentionEngine> make_cudnn_attention(const cuda::DeviceProperties& device);

// The same for a GPU that is not here: why_not() answers as it would there, but for what the
// loading of compiled code could say; forward and backward may not be called. `json` is what cuDNN
// tells of the GPU (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). Throws CudaError where cuDNN does
// not open.
std::shared_ptr<AttentionEngine> make_cudnn_attention_for(const cuda::DeviceProperties& device,
                                                          const std::string& json);

}  // namespace trireme::ops
