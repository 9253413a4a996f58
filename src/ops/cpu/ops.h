// The operations on a CPU, behind the checks of their public namesakes (include/trireme/ops).
#pragma once

#include "trireme/ops/attention.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/embedding.h"
#include "trireme/ops/norm.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/ops/update.h"

namespace trireme::ops::cpu {

void fill(Context& ctx, const Tensor& x, float value);
void cast(Context& ctx, const Tensor& x, const Tensor& y);
void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& y);
void scale(Context& ctx, const Tensor& x, float factor);
void add_bias(Context& ctx, const Tensor& x, const Tensor& bias);
void add_column_sums(Context& ctx, const Tensor& x, const Tensor& sums);
void gelu(Context& ctx, const Tensor& x, const Tensor& y);
void gelu_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx);
void swiglu(Context& ctx, const Tensor& gate_up, const Tensor& y);
void swiglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up);
void dropout(Context& ctx, const Tensor& x, float rate, const DropoutPlace& place, const Tensor& y);

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd);
void layer_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& dx);
void layer_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                                const Tensor& rstd, const Tensor& dweight, const Tensor& dbias);
void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
              const Tensor& rstd);
void rms_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                             const Tensor& rstd, const Tensor& dx);
void rms_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              const Tensor& dweight);

void embedding(Context& ctx, const Tensor& tokens, const Tensor& table, std::int64_t first_token,
               const Tensor& y);
void embedding_backward(Context& ctx, const Tensor& tokens, const Tensor& dy,
                        std::int64_t first_token, const Tensor& dtable);
void add_positions(Context& ctx, const Tensor& x, const Tensor& table, std::int64_t first_row,
                   std::int64_t length, std::int64_t first_position, const Tensor& y);
void add_positions_backward(Context& ctx, const Tensor& dy, std::int64_t first_row,
                            std::int64_t length, const Tensor& dtable);

void softmax_statistics(Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                        const Tensor& row_sum, const Tensor& target_logit);
void softmax_gradient(Context& ctx, const Tensor& logits, const Tensor& targets,
                      std::int64_t first_class, std::int64_t valid, const Tensor& row_max,
                      const Tensor& row_sum, const Tensor& dlogits);
void softmax_loss_sum(const Tensor& targets, const Tensor& row_max, const Tensor& row_sum,
                      const Tensor& target_logit, const Tensor& sum);
void softmax_rescale(const Tensor& local_max, const Tensor& row_max, const Tensor& row_sum);

void adamw_step(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& weights);
void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights);
void add_sum_of_squares(Context& ctx, const Tensor& x, const Tensor& sum);
void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm);

void attention(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
               const Tensor& first_key, const Tensor& out, const Tensor& log_sum);
void attention_backward(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                        const Tensor& first_key, const Tensor& out, const Tensor& log_sum,
                        const Tensor& dout, const Tensor& dqkv);
void attention_cached(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                      std::int64_t past, const Tensor& keys, const Tensor& values,
                      const Tensor& out);
void rotary(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
            std::int64_t first_position, float theta, bool inverse);

}  // namespace trireme::ops::cpu
