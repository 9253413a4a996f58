// Reference operations in double precision, written directly from their definitions.
#pragma once

#include "trireme/ops/attention.h"

#include "support/ops_testing.h"

namespace trireme::testing::reference {

// c (m, n) = op(a) op(b).
Values matmul(const Values& a, bool transpose_a, const Values& b, bool transpose_b, std::int64_t m,
              std::int64_t n, std::int64_t k);
double gelu(double x);
double sigmoid(double x);
// gate_up (rows, 2 * width).
Values swiglu(const Values& gate_up, std::int64_t width);
// x (rows, n); bias may be empty.
Values layer_norm(const Values& x, const Values& weight, const Values& bias, double epsilon);
Values rms_norm(const Values& x, const Values& weight, double epsilon);
// Cross entropy summed over rows whose target is not negative; logits (rows, classes), where only
// the first `valid` classes count.
double cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets,
                     std::int64_t classes, std::int64_t valid);
// As ops::attention; first_key may be empty.
Values attention(const ops::AttentionShape& shape, const Values& qkv,
                 const std::vector<std::int32_t>& first_key);
Values rotary(const ops::AttentionShape& shape, const Values& qkv, std::int64_t first_position,
              double theta);

}  // namespace trireme::testing::reference
