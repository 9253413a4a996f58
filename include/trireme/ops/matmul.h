// Matrix products. Operands fp32, bf16 or fp16 (both the same); accumulation in fp32.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

enum class Transpose { kNo, kYes };

// c (m, n) = op(a) (m, k) * op(b) (k, n) + beta * c, with beta 0 or 1. All two-dimensional; c is
// fp32 or of a's type. With beta 0, c may hold anything, NaN too.
void matmul(Context& ctx, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, float beta, const Tensor& c);

// y (rows, out) = x (rows, in) * weight (out, in)^T + bias (out); bias may be undefined.
void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Tensor& y);
// dx (rows, in) = dy (rows, out) * weight (out, in).
void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx);
// dweight (out, in) += dy^T * x and dbias (out) += column sums of dy, both fp32; dbias may be
// undefined.
void linear_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& dweight,
                            const Tensor& dbias);

}  // namespace trireme::ops
