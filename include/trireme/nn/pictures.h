// The layers of models on pictures. Values are (N, H, W, C), channels last. They are not split over
// the tensor ranks.
#pragma once

#include <string>

#include "trireme/nn/layers.h"
#include "trireme/nn/state.h"
#include "trireme/ops/batch_norm.h"
#include "trireme/ops/convolution.h"
#include "trireme/ops/pooling.h"

namespace trireme::nn {

// Parameters NAME.weight (out, kernel, kernel, in / groups) and NAME.bias (out).
class Convolution {
 public:
  struct Options {
    std::int64_t in, out;
    std::int64_t kernel = 1, stride = 1, padding = 0, groups = 1;
    bool bias = false;
    float deviation = 0.02f;  // of the initial weights
    bool inner = true;        // ParameterSpec::inner_matrix, where there is one group
  };
  // The deviation with which a ReLU network keeps the size of its gradients (He et al. 2015,
  // "fan out" of a group, as timm's models have it; torchvision's count all groups).
  static float deviation_of(std::int64_t kernel, std::int64_t out, std::int64_t groups);

  Convolution(const LayerContext& context, const Options& options);
  // Throws InternalError if x has other channels or is smaller than the kernel.
  Value forward(Tape& tape, const Value& x) const;

 private:
  friend class BatchNorm;
  ops::ConvolutionShape shape_of(const Value& x) const;
  // Records that y was made of x.
  Value record(Tape& tape, const Value& x, const Tensor& y) const;

  Options options_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

// Batch norm of each channel (torch.nn.BatchNorm2d), with what follows it. Parameters NAME.weight
// and NAME.bias, state NAME.running (2, C): the running means and variances.
//
// In training the moments are those of the micro-batch, which is the same group of samples on every
// grid; or with `replicas` those of the micro-batches that the replicas compute at the same time,
// for which forward and backward are collective over them. They are proposed for the running ones,
// the variance as an unbiased estimate. Otherwise the running ones are used.
class BatchNorm {
 public:
  struct Options {
    std::int64_t channels;
    float epsilon = 1e-5f;
    float momentum = 0.1f;
    ops::Clamp clamp;  // what follows: kRelu, kRelu6 or nothing
    float initial_weight = 1.0f;
    std::shared_ptr<Communicator> replicas = {};  // BuildContext::replicas, or null
  };
  BatchNorm(const LayerContext& context, StateSet& states, const Options& options);
  Value forward(Tape& tape, const MicroBatch& batch, const Value& x) const;
  // The same with `residual` added before the clamp.
  Value forward(Tape& tape, const MicroBatch& batch, const Value& x, const Value& residual) const;
  // The norm of a convolution of x, or, with `before`, of what that norm makes of x: what the calls
  // one after the other return. Where ops::depthwise_takes_norms, the convolution's kernels do a
  // part of the norms' work, and what `before` makes is not kept.
  Value forward(Tape& tape, const MicroBatch& batch, const Convolution& convolution, const Value& x,
                const BatchNorm* before = nullptr) const;

 private:
  // What the backward needs.
  struct Pass {
    Value x;
    bool adds;  // the gradient of what was added is wanted
    GradientSlot residual;
    Tensor moments;
    Tensor y;  // if it cannot be made again from x
    bool of_batch;
  };
  // `own`: the moments of x, or undefined.
  Value normalize(Tape& tape, const MicroBatch& batch, const Value& x, const Value& residual,
                  const Tensor& own) const;
  // Records that y is a convolution of what this norm makes of pass.x.
  Value record_convolved(Tape& tape, const Pass& pass, const Convolution& convolution,
                         const Tensor& y) const;
  // How many replicas share moments.
  int sharing() const { return options_.replicas ? options_.replicas->size() : 1; }
  // The moments that x is normalised with. In training they are proposed for the running ones.
  Tensor moments_for(Tape& tape, const MicroBatch& batch, const Value& x, const Tensor& own) const;
  Tensor shared_moments(ops::Context& ctx, const Tensor& own) const;
  void propose(ops::Context& ctx, const MicroBatch& batch, const Tensor& moments,
               std::int64_t rows) const;
  ops::BatchNorm norm(const Tensor& moments) const;
  // The gradients of bias and weight (2, C), of this replica's rows.
  Tensor sums(ops::Context& ctx, const Pass& pass, const Tensor& dy) const;
  void add_weight_gradients(Tape& tape, const Tensor& sums) const;
  void backward_input(Tape& tape, const Pass& pass, const Tensor& sums, const Tensor& dy) const;

  Options options_;
  Parameter *weight_, *bias_;
  State* running_;
};

// ReLU, ReLU6.
Value clamp(Tape& tape, const Value& x, const ops::Clamp& range);
// Windows of kernel x kernel pixels.
Value max_pooling(Tape& tape, const Value& x, std::int64_t kernel, std::int64_t stride,
                  std::int64_t padding);
// (N, H, W, C) -> (N, C): the mean over the picture.
Value global_average_pooling(Tape& tape, const Value& x);

// The field kPixels (N, H, W, 3) in the type `compute`.
Value pixels_of(Tape& tape, const MicroBatch& batch, DType compute);

// logits (N, classes). Adds the loss (ops::classification_loss) of the field kTargets (N) to
// batch.loss_sum, on a recording tape in the backward, and the targets that are right to
// batch.correct if that is defined.
void classification_loss(Tape& tape, const MicroBatch& batch, const Value& logits, float smoothing);

// What a model that classifies ends in. With targets it adds their loss, with smoothing in training
// alone, so that held-out losses are cross-entropies, which compare between runs. Without targets
// it returns the logits, fp32.
Values classify(Tape& tape, const MicroBatch& batch, const Value& logits, float smoothing);

}  // namespace trireme::nn
