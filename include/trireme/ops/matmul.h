// Matrix products. Both operands are of one type: fp32, bf16 or fp16. Accumulation is in fp32.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

enum class Transpose { kNo, kYes };

// c (m, n) = op(a) (m, k) * op(b) (k, n) + beta * c, with beta 0 or 1. All are two-dimensional; c
// is fp32 or of a's type. With beta 0 c may hold anything before the call, even NaN.
void matmul(Context& ctx, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, float beta, const Tensor& c);

// y (rows, out) = x (rows, in) * weight (out, in)^T + bias (out); bias may be undefined.
void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Tensor& y);
// y (rows, out) = addend (rows, out) + x * weight^T + bias. The addend is of y's type, and not y.
// On a GPU that is one product, which rounds once, if cuBLASLt can do it; otherwise linear's y is
// rounded, and then the sum.
void linear_added(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& addend, const Tensor& y);
// pre (rows, out) = linear's y, and y = gelu(pre) (elementwise.h); both are of one type. On a GPU
// the two are fused if cuBLASLt can do it, and y is then made from pre before pre is rounded.
// Otherwise they are two steps. Returns whether gelu(pre) makes y again, with the same bits: not if
// they were fused.
bool linear_gelu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 const Tensor& pre, const Tensor& y);
// dx (rows, in) = dy (rows, out) * weight (out, in).
void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx);
// The same for x = gelu(pre), with pre (rows, in): dpre (rows, in) = gelu'(pre) * (dy * weight),
// and dbias (in), fp32, += the column sums of dpre, which are the gradient of the bias in pre.
// dbias may be undefined. Fused as linear_gelu is. The column sums are in fp32, fused or not.
void linear_backward_input_gelu(Context& ctx, const Tensor& dy, const Tensor& weight,
                                const Tensor& pre, const Tensor& dpre, const Tensor& dbias);
// dweight (out, in) = dy^T * x + beta * dweight, and dbias (out) += the column sums of dy, both
// fp32. Either may be undefined.
void linear_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& dweight,
                            const Tensor& dbias, float beta = 1.0f);

}  // namespace trireme::ops
