// A library behind ops::attention and ops::attention_backward, for the shapes that it supports.
#pragma once

#include <memory>
#include <string>

#include "trireme/ops/attention.h"
#include "trireme/tensor/cuda.h"

namespace trireme::ops {

// Everything that determines whether and how a library computes attention.
struct AttentionKind {
  AttentionShape shape;
  DType dtype = DType::kBF16;    // of qkv, out and their gradients
  bool masks_documents = false;  // KeyRanges::first is given
  bool masks_ends = false;       // KeyRanges::end is given
  bool any_order = false;        // of the sums of gradients: Context::any_order

  auto operator<=>(const AttentionKind&) const = default;
};

// Serves one call at a time.
class AttentionEngine {
 public:
  virtual ~AttentionEngine() = default;

  // Empty if forward and backward of this kind are supported, otherwise the reason why not, in a
  // few words. The first call for a kind may take seconds: it compiles.
  virtual const std::string& why_not(const AttentionKind& kind) = 0;
  // These do what ops::attention and ops::attention_backward do. Only for kinds for which why_not()
  // is empty.
  virtual void forward(Context& ctx, const AttentionKind& kind, const Tensor& qkv,
                       const Tensor& out, const Tensor& log_sum) = 0;
  virtual void backward(Context& ctx, const AttentionKind& kind, const Tensor& qkv,
                        const Tensor& out, const Tensor& log_sum, const Tensor& dout,
                        const Tensor& dqkv) = 0;
  virtual std::string_view description() const = 0;  // "cuDNN 9.19.0"
};

// Takes the place of a library that is not there: refuses every kind for the same reason, in one
// line.
std::shared_ptr<AttentionEngine> make_absent_attention(std::string library, std::string why);

// cuDNN's fused attention, deterministic unless a kind allows any order, on the calling thread's
// device; `device` is that device's properties. Returns an absent one if this build has no cuDNN,
// or if cuDNN or CUDA's shared runtime (libcudart) does not open on this machine.
std::shared_ptr<AttentionEngine> make_cudnn_attention(const cuda::DeviceProperties& device);

// The same for a GPU that this machine does not have. why_not() answers as it would there, except
// that it cannot know of faults in loading compiled code. forward and backward must not be called.
// `json` is cuDNN's description of the GPU (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). Throws
// CudaError if cuDNN does not open.
std::shared_ptr<AttentionEngine> make_cudnn_attention_for(const cuda::DeviceProperties& device,
                                                          const std::string& json);

}  // namespace trireme::ops
