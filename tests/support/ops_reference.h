// Reference operations in double precision, written directly from their definitions.
#pragma once

#include "trireme/ops/attention.h"
#include "trireme/ops/convolution.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/head_norm.h"
#include "trireme/ops/pooling.h"

#include "support/ops_testing.h"

namespace trireme::testing::reference {

// c (m, n) = op(a) op(b).
Values matmul(const Values& a, bool transpose_a, const Values& b, bool transpose_b, std::int64_t m,
              std::int64_t n, std::int64_t k);
double gelu(double x);
double gelu_erf(double x);
double sigmoid(double x);
// gate_up (rows, 2 * width).
Values swiglu(const Values& gate_up, std::int64_t width);
Values geglu(const Values& gate_up, std::int64_t width);
// x (rows, n); bias may be empty.
Values layer_norm(const Values& x, const Values& weight, const Values& bias, double epsilon);
Values rms_norm(const Values& x, const Values& weight, double epsilon);
// Cross entropy summed over rows whose target is not negative; logits (rows, classes), where only
// the first `valid` classes count.
double cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets,
                     std::int64_t classes, std::int64_t valid);
// Computes ops::classification_loss.
double classification_loss(const Values& logits, const std::vector<std::int32_t>& targets,
                           std::int64_t classes, double smoothing);
// Computes ops::convolution without a bias.
Values convolution(const ops::ConvolutionShape& shape, const Values& x, const Values& weight);
// The gradients of x and of the weights.
struct ConvolutionGradients {
  Values x, weight;
};
ConvolutionGradients convolution_backward(const ops::ConvolutionShape& shape, const Values& x,
                                          const Values& weight, const Values& dy);
// The means and variances (2, n) of the columns of x (rows, n).
Values batch_moments(const Values& x, std::int64_t n);
// Computes ops::batch_norm with these moments; residual may be empty.
Values batch_norm(const Values& x, const Values& moments, const Values& weight, const Values& bias,
                  double epsilon, const Values& residual, const ops::Clamp& clamp);
// Calls body(index in the output, what the window there sees) for each window and channel, in the
// order of the output. Outside of the picture it sees NaN.
void for_windows(const ops::PoolingShape& shape, const Values& x,
                 const std::function<void(std::size_t, const Values&)>& body);
// Computes ops::attention; what ops::KeyRanges says may be empty.
Values attention(const ops::AttentionShape& shape, const Values& qkv,
                 const std::vector<std::int32_t>& first_key,
                 const std::vector<std::int32_t>& key_end = {});
Values rotary(const ops::AttentionShape& shape, const Values& qkv, std::int64_t first_position,
              const ops::Rotation& rotation);
// Computes ops::head_norm with these factors; with norm.whole the heads of one rank are all there
// are.
Values head_norm(const ops::HeadNorm& norm, const Values& qkv, const Values& query,
                 const Values& key);

}  // namespace trireme::testing::reference
