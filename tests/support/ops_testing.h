// Helpers for tests of operations: values in double, tensors made from them, tolerances.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/ops/context.h"

#include "support/ops_device.h"

namespace trireme::testing {

using Values = std::vector<double>;

// Normally distributed values, the same for the same seed.
Values random_values(std::uint64_t seed, std::int64_t n, double scale = 1.0);

// A tensor of the values, rounded to its type.
Tensor make_tensor(ops::Context& ctx, const Values& values, const Shape& shape, DType dtype);
Tensor make_tensor(ops::Context& ctx, const std::vector<std::int32_t>& values);
Tensor make_tensor(ops::Context& ctx, const std::vector<std::int64_t>& values);
// A tensor filled with NaN, which an operation must overwrite.
Tensor make_output(ops::Context& ctx, const Shape& shape, DType dtype);
Tensor make_zeros(ops::Context& ctx, const Shape& shape, DType dtype);
Tensor make_tensor(ops::Context& ctx, double value);  // (1) fp64
// The values of a tensor of fp32, bf16, fp16 or fp64.
Values values_of(const Tensor& x);
// The values rounded to this type.
Values rounded(const Values& values, DType dtype);

// max |a - b| / max |b|; infinite where a is not finite and b is.
double relative_error(const Values& a, const Values& b);

// The central differences of `loss` with respect to each element of x.
Values finite_differences(const std::function<double(const Values&)>& loss, Values x);
double inner_product(const Values& a, const Values& b);

// The largest relative_error that an operation may have against the reference in double. All tests
// use this one table.
double tolerance(const std::string& op, DType dtype);

// The bytes of a tensor, to compare bit by bit.
std::string bits_of(const Tensor& x);

void expect_close(const Tensor& x, const Values& reference, double tolerance,
                  const std::string& what);

// Tests that run for each floating type, on the device of the program (ops_device.h).
class OpsTest : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  Tensor tensor(const Values& values, const Shape& shape) {
    return make_tensor(ctx, values, shape, dtype());
  }
  Tensor output(const Shape& shape) { return make_output(ctx, shape, dtype()); }
  // Random values that a tensor of this type holds exactly.
  Values random(std::uint64_t seed, std::int64_t n, double scale = 1.0) {
    return rounded(random_values(seed, n, scale), dtype());
  }

  // Every operation leaves the counters of blocks as it found them.
  void TearDown() override;

  // Sets the state that operations read.
  void set(const ops::StepState& state) { ops::write_step_state(ctx, state); }

  ops::Context ctx = make_test_context();
};

std::string dtype_name(const ::testing::TestParamInfo<DType>& info);

#define TRIREME_FOR_EACH_DTYPE(Suite)                                                             \
  INSTANTIATE_TEST_SUITE_P(                                                                       \
      Types, Suite,                                                                               \
      ::testing::Values(::trireme::DType::kF32, ::trireme::DType::kBF16, ::trireme::DType::kF16), \
      ::trireme::testing::dtype_name)

}  // namespace trireme::testing
