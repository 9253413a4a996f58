// The kernels of attention that attention_gpu.cu and attention_backward_gpu.cu choose from.
#pragma once

#include "ops/gpu/attention_problem.h"

namespace trireme::ops::gpu {

// What the backward reads and writes.
struct BackwardHeads {
  Heads q, k, v, dout, dq, dk, dv;
  const float* log_sum;
  const float* delta;  // (batch, heads, length): the sum over d of out * dout
};

// The same as the fp32 kernels, by tensor cores, for shapes that on_tensor_cores() takes and heads
// of one type, bf16 or fp16, whose rows begin at multiples of 16 bytes.
void attend_on_tensor_cores(Context& ctx, const AttentionShape& shape,
                            const AttentionProblem& problem, const Heads& q, const Heads& k,
                            const Heads& v, const Heads& out, float* log_sum);
void differentiate_on_tensor_cores(Context& ctx, const AttentionShape& shape,
                                   const AttentionProblem& problem, const BackwardHeads& heads);

}  // namespace trireme::ops::gpu
