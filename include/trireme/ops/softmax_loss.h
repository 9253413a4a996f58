// Cross entropy over a vocabulary of which a rank may hold a part, in two phases, so that the ranks
// can combine their statistics in between.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

inline constexpr std::int32_t kMaskedTarget = -1;

// For each row of logits (rows, classes) fp32, over the first `valid` classes (the rest is
// padding): row_max, row_sum = sum of exp(logit - row_max), and target_logit = the logit of the
// target where first_class <= target < first_class + valid, else 0. All (rows) fp32; targets (rows)
// int32.
void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit);
// dlogits (rows, classes), fp32, bf16 or fp16 = exp(logit - row_max) / row_sum - [class is the
// target], times StepState::loss_scale, from the statistics of the whole vocabulary; zero for
// padding and for rows whose target is masked. dlogits may be logits.
void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits);
// sum (1) fp64 += over unmasked rows log(row_sum) + row_max - target_logit, in double, in row
// order.
void softmax_loss_sum(Context& ctx, const Tensor& targets, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& target_logit, const Tensor& sum);
// row_sum *= exp(local_max - row_max): from the maximum over a part to that over the whole. (rows)
// each.
void softmax_rescale(Context& ctx, const Tensor& local_max, const Tensor& row_max,
                     const Tensor& row_sum);

}  // namespace trireme::ops
