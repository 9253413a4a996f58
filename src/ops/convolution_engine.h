// A library behind ops::convolution, for the shapes that it supports.
#pragma once

#include <memory>
#include <string>

#include "trireme/ops/convolution.h"
#include "trireme/tensor/cuda.h"

namespace trireme::ops {

// Everything that determines whether and how a library computes a convolution.
struct ConvolutionKind {
  ConvolutionShape shape;
  DType dtype = DType::kF32;  // of x, weight, y, dx and dy

  auto operator<=>(const ConvolutionKind&) const = default;
};

// Serves one call at a time. On a dry context oneDNN asks for its workspace and computes nothing; a
// dry GPU has no engine.
class ConvolutionEngine {
 public:
  virtual ~ConvolutionEngine() = default;

  // Empty if the three calls are supported for this kind, otherwise the reason why not, in a few
  // words.
  virtual const std::string& why_not(const Context& ctx, const ConvolutionKind& kind) = 0;
  // These do what the functions in convolution.h do, without a bias. Only for kinds for which
  // why_not() is empty.
  virtual void forward(Context& ctx, const ConvolutionKind& kind, const Tensor& x,
                       const Tensor& weight, const Tensor& y) = 0;
  virtual void backward_input(Context& ctx, const ConvolutionKind& kind, const Tensor& dy,
                              const Tensor& weight, const Tensor& dx) = 0;
  virtual void backward_weight(Context& ctx, const ConvolutionKind& kind, const Tensor& dy,
                               const Tensor& x, const Tensor& dweight) = 0;
  virtual std::string_view description() const = 0;  // "oneDNN 2.6.3 (AVX-512)"
};

// oneDNN: fp32, and bf16 on processors that have instructions for it.
std::unique_ptr<ConvolutionEngine> make_onednn_convolution();
// The one of this processor; null if matrix products are the better choice: see
// make_cpu_matmul_engine.
std::shared_ptr<ConvolutionEngine> make_cpu_convolution_engine();

// cuDNN's convolutions, in their deterministic forms, on the calling thread's device; `device` is
// that device's properties. `tf32`: operands in fp32 may be rounded to TF32. It leaves what is a
// product of matrices to the matrix products. Null if this build has no cuDNN, or if cuDNN or
// CUDA's shared runtime (libcudart) does not open on this machine.
std::shared_ptr<ConvolutionEngine> make_cudnn_convolution(const cuda::DeviceProperties& device,
                                                          bool tf32);

// The same for a GPU that this machine does not have: see make_cudnn_attention_for.
std::shared_ptr<ConvolutionEngine> make_cudnn_convolution_for(const cuda::DeviceProperties& device,
                                                              const std::string& json, bool tf32);

}  // namespace trireme::ops
