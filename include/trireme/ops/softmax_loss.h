// Cross entropy over a vocabulary that may be split over ranks. It has two phases, so that the
// ranks can combine their statistics in between; a rank that has all of it needs only one. Logits
// are fp32 or bf16. All arithmetic is fp32, and the statistics are.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

inline constexpr std::int32_t kMaskedTarget = -1;

// What a model does with its logits before the softmax: l becomes cap * tanh(scale * l / cap), or
// scale * l with cap 0.
struct LogitBend {
  float scale = 1.0f, cap = 0.0f;

  bool bends() const { return scale != 1.0f || cap > 0.0f; }
};
// Bends logits, fp32 or bf16 of any shape, in place.
void bend_logits(Context& ctx, const Tensor& logits, const LogitBend& bend);

// For each row of logits (rows, classes), over the first `valid` classes (the rest is
// padding): row_max = the largest logit, row_sum = the sum of exp(logit - row_max), and
// target_logit = the target's logit if first_class <= target < first_class + valid, else 0. All
// three are (rows) fp32; targets (rows) int32.
void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit);
// dlogits (rows, classes), fp32, bf16 or fp16, = StepState::loss_scale times
// (exp(logit - row_max) / row_sum - [class is the target]). row_max and row_sum are those of the
// whole vocabulary. Padding and rows with a masked target get zero. dlogits may be logits, and is
// bf16 where they are. Where logits were bent, this is the gradient of what they were before.
void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits, const LogitBend& bend = {});
// Both at once, where this rank has the whole vocabulary: first_class is 0. A GPU then reads from
// memory once what its shared memory holds of a row, which has a multiple of eight classes, and the
// rest twice. row_sum may be rounded otherwise than alone, and with fp32 logits so on other GPUs:
// rows of up to 51,200 classes or so are held whole by a kernel of their own. Where these are bent,
// they are read twice.
void softmax_and_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                          std::int64_t valid, const Tensor& row_max, const Tensor& row_sum,
                          const Tensor& target_logit, const Tensor& dlogits,
                          const LogitBend& bend = {});
// sum (1) fp64 += the sum of log(row_sum) + row_max - target_logit over the unmasked rows, in
// double. The order is fixed: row order on a CPU, one that depends on the number of rows on a GPU.
void softmax_loss_sum(Context& ctx, const Tensor& targets, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& target_logit, const Tensor& sum);
// row_sum *= exp(local_max - row_max): converts row_sum from the maximum over a part of the
// vocabulary to the maximum over the whole. All are (rows).
void softmax_rescale(Context& ctx, const Tensor& local_max, const Tensor& row_max,
                     const Tensor& row_sum);

// Cross entropy over a few classes, none of which is padding or on another rank. A row's loss is
// against the distribution that gives its target 1 - smoothing, and every class smoothing / classes
// besides (label smoothing, Szegedy et al. 2016). logits (rows, classes), targets (rows) int32.
// sum (1) fp64 += the sum of the losses of the unmasked rows, in an order that depends on the
// number of rows alone. dlogits = StepState::loss_scale times the gradient of that sum, or is
// undefined; it may be logits. smoothing is in [0, 1).
void classification_loss(Context& ctx, const Tensor& logits, const Tensor& targets, float smoothing,
                         const Tensor& sum, const Tensor& dlogits);
// counts (2) int64 += the number of rows whose target has the largest logit, and of those whose
// target is among the five largest. Of equal logits the one of the lower class is the larger; a
// target whose logit is NaN is never counted, nor is a masked one.
void count_correct(Context& ctx, const Tensor& logits, const Tensor& targets, const Tensor& counts);

}  // namespace trireme::ops
