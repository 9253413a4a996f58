#include "support/ops_testing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "trireme/base/philox.h"

namespace trireme::testing {

Values random_values(std::uint64_t seed, std::int64_t n, double scale) {
  Values values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * static_cast<double>(philox_normal_at(philox_key(seed, "test"), i));
  }
  return values;
}

namespace {

template <class T>
void upload_values(ops::Context& ctx, const Values& values, const Tensor& x) {
  std::vector<T> host;
  for (const double value : values) host.emplace_back(static_cast<float>(value));
  upload(ctx, host.data(), x);
}

double rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  switch (dtype) {
    case DType::kBF16:
      return static_cast<double>(static_cast<float>(BFloat16(single)));
    case DType::kF16:
      return static_cast<double>(static_cast<float>(Half(single)));
    default:
      return static_cast<double>(single);
  }
}

}  // namespace

Tensor make_tensor(ops::Context& ctx, const Values& values, const Shape& shape, DType dtype) {
  const Tensor x = ctx.allocate(shape, dtype);
  TRIREME_CHECK(x.elements() == static_cast<std::int64_t>(values.size()),
                "a test's shape is wrong");
  if (dtype == DType::kF32) {
    upload_values<float>(ctx, values, x);
  } else if (dtype == DType::kBF16) {
    upload_values<BFloat16>(ctx, values, x);
  } else {
    TRIREME_CHECK(dtype == DType::kF16, "a test makes values of another type");
    upload_values<Half>(ctx, values, x);
  }
  return x;
}

namespace {

template <class T>
Tensor make_copy(ops::Context& ctx, const std::vector<T>& values) {
  Tensor x = ctx.allocate({static_cast<std::int64_t>(values.size())}, dtype_of<T>());
  upload(ctx, values.data(), x);
  return x;
}

template <class T>
Values read_values(const Tensor& x) {
  std::vector<T> host(static_cast<std::size_t>(x.elements()));
  download(x, host.data());
  Values values;
  for (const T value : host) values.push_back(static_cast<double>(static_cast<float>(value)));
  return values;
}

}  // namespace

Tensor make_tensor(ops::Context& ctx, const std::vector<std::int32_t>& values) {
  return make_copy(ctx, values);
}

Tensor make_tensor(ops::Context& ctx, const std::vector<std::int64_t>& values) {
  return make_copy(ctx, values);
}

Tensor make_tensor(ops::Context& ctx, double value) {
  return make_copy(ctx, std::vector<double>{value});
}

Tensor make_output(ops::Context& ctx, const Shape& shape, DType dtype) {
  const Values nans(static_cast<std::size_t>(shape.elements()),
                    std::numeric_limits<double>::quiet_NaN());
  return make_tensor(ctx, nans, shape, dtype);
}

Tensor make_zeros(ops::Context& ctx, const Shape& shape, DType dtype) {
  const Tensor zeros = ctx.allocate(shape, dtype);
  upload(ctx, std::string(zeros.bytes(), '\0').data(), zeros);
  return zeros;
}

Values values_of(const Tensor& x) {
  if (x.dtype() == DType::kF32) return read_values<float>(x);
  if (x.dtype() == DType::kBF16) return read_values<BFloat16>(x);
  if (x.dtype() == DType::kF16) return read_values<Half>(x);
  if (x.dtype() == DType::kU8) return read_values<std::uint8_t>(x);
  if (x.dtype() == DType::kU16) return read_values<std::uint16_t>(x);
  Values values(static_cast<std::size_t>(x.elements()));
  TRIREME_CHECK(x.dtype() == DType::kF64, "a test reads values of another type");
  download(x, values.data());
  return values;
}

Values rounded(const Values& values, DType dtype) {
  Values result = values;
  for (double& value : result) value = rounded(value, dtype);
  return result;
}

double relative_error(const Values& a, const Values& b) {
  double error = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double difference = std::abs(a.at(i) - b[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    error = std::max(error, difference);
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest == 0.0 ? error : error / largest;
}

Values finite_differences(const std::function<double(const Values&)>& loss, Values x) {
  constexpr double kStep = 1e-5;
  Values gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double old = x[i];
    x[i] = old + kStep;
    const double above = loss(x);
    x[i] = old - kStep;
    const double below = loss(x);
    x[i] = old;
    gradient[i] = (above - below) / (2.0 * kStep);
  }
  return gradient;
}

double inner_product(const Values& a, const Values& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b.at(i);
  return sum;
}

// In bf16 an output is rounded to 8 bits, which alone gives an error of up to 0.004. "_weight"
// gradients are fp32 sums of products of bf16 values, exact except for the order. Attention reads
// its bf16 output in the backward, so its gradients contain that rounding too. fp16 has 3 bits
// more, so its tolerance is an eighth of bf16's wherever that is due to rounding to the type.
double tolerance(const std::string& op, DType dtype) {
  struct Pair {
    double fp32, bf16;
  };
  static const std::map<std::string, Pair> kTable = {
      {"matmul", {3e-6, 4e-3}},
      {"matmul_fp32_out", {3e-6, 3e-6}},
      {"matmul_added", {3e-6, 8e-3}},  // cuBLASLt may round the product before it adds
      {"linear", {1e-6, 8e-3}},
      {"linear_gelu", {1e-5, 8e-3}},  // cuBLASLt's own hyperbolic tangent
      {"elementwise", {3e-7, 4e-3}},
      {"gelu", {1e-6, 4e-3}},
      {"column_sums", {1e-6, 1e-6}},
      {"norm", {2e-6, 4e-3}},
      {"norm_saved", {1e-6, 1e-6}},
      {"norm_backward_input", {3e-6, 4e-3}},
      {"norm_backward_weight", {2e-6, 2e-6}},
      {"convolution", {3e-6, 4e-3}},
      {"convolution_backward_weight", {3e-6, 3e-6}},
      {"batch_norm", {3e-6, 4e-3}},
      {"batch_norm_saved", {1e-6, 1e-6}},
      {"batch_norm_backward", {5e-6, 4e-3}},
      {"batch_norm_sums", {3e-6, 3e-6}},
      {"pooling", {1e-6, 4e-3}},
      {"embedding", {1e-7, 4e-3}},
      {"embedding_backward", {1e-6, 1e-6}},
      {"softmax", {1e-6, 4e-3}},
      {"attention", {2e-6, 4e-3}},
      {"attention_backward", {5e-6, 1.2e-2}},
      {"rotary", {1e-6, 4e-3}},
      {"head_norm", {2e-6, 4e-3}},
      {"head_norm_backward", {5e-6, 4e-3}},
      {"head_norm_weight", {5e-6, 5e-6}},
      {"bent", {4e-6, 4e-3}},
      {"update", {1e-6, 4e-3}},
  };
  const Pair& pair = kTable.at(op);
  if (dtype == DType::kF16) return std::max(pair.fp32, pair.bf16 / 8.0);
  return dtype == DType::kF32 ? pair.fp32 : pair.bf16;
}

std::string bits_of(const Tensor& x) {
  std::string bits(x.bytes(), '\0');
  download(x, bits.data());
  return bits;
}

void expect_close(const Tensor& x, const Values& reference, double tolerance,
                  const std::string& what) {
  const double error = relative_error(values_of(x), reference);
  EXPECT_LE(error, tolerance) << what;
}

void OpsTest::TearDown() {
  if (!ctx.block_counters.defined()) return;
  const std::string bits = bits_of(ctx.block_counters);
  EXPECT_EQ(bits.find_first_not_of('\0'), std::string::npos);
}

std::string dtype_name(const ::testing::TestParamInfo<DType>& info) {
  return std::string(name_of(info.param));
}

}  // namespace trireme::testing
