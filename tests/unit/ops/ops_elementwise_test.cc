#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "trireme/base/philox.h"
#include "trireme/ops/elementwise.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using testing::Values;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Elementwise : public testing::OpsTest {};

// Beyond one stage (1024) and one block (16384), and no multiple of a vector.
constexpr std::int64_t kMany = 2 * 16384 + 1024 + 13;

TEST_P(Elementwise, FillAddScale) {
  const Values a = random(1, kMany), b = random(2, kMany);
  const Tensor y = output({kMany});
  ops::fill(ctx, y, 2.5f);
  testing::expect_close(y, Values(kMany, 2.5), 0.0, "fill");
  for (const DType type : {DType::kU8, DType::kU16}) {
    const Tensor numbers = ctx.allocate({kMany}, type);
    ops::fill(ctx, numbers, 7.0f);
    EXPECT_EQ(testing::values_of(numbers), Values(kMany, 7.0));
  }
  ops::add(ctx, tensor(a, {kMany}), tensor(b, {kMany}), y);
  Values expected(kMany);
  for (std::size_t i = 0; i < a.size(); ++i) expected[i] = a[i] + b[i];
  testing::expect_close(y, expected, testing::tolerance("elementwise", dtype()), "add");
  const Tensor in_place = tensor(a, {kMany});
  ops::add(ctx, in_place, tensor(b, {kMany}), in_place);
  EXPECT_EQ(testing::bits_of(in_place), testing::bits_of(y));
  ops::scale(ctx, in_place, -3.0f);
  for (double& value : expected) value *= -3.0;
  testing::expect_close(in_place, expected, 2 * testing::tolerance("elementwise", dtype()),
                        "scale");
}

TEST_P(Elementwise, AddScaled) {
  const Values x = random(1, kMany);
  Values sum = testing::rounded(testing::random_values(2, kMany), DType::kF32);
  const Tensor y = testing::make_tensor(ctx, sum, {kMany}, DType::kF32);
  ops::add_scaled(ctx, tensor(x, {kMany}), 0.25f, y);
  for (std::size_t i = 0; i < x.size(); ++i) sum[i] += 0.25 * x[i];
  testing::expect_close(y, sum, testing::tolerance("elementwise", DType::kF32), "sum");
}

TEST_P(Elementwise, Cast) {
  const Values x = random(1, kMany);
  for (const DType to : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor y = testing::make_output(ctx, {kMany}, to);
    ops::cast(ctx, tensor(x, {kMany}), y);
    testing::expect_close(y, testing::rounded(x, to), 0.0, "cast");
  }
}

TEST_P(Elementwise, CastRoundsAndKeepsNotFinite) {
  // Half way cases go to the even neighbour; the largest float rounds to infinity.
  const Values x = {1.0 + 1.0 / 256, 1.0 + 3.0 / 256, kNan, kInfinity, -kInfinity, 3.4028234e38};
  const Tensor y = testing::make_output(ctx, {6}, DType::kBF16);
  ops::cast(ctx, testing::make_tensor(ctx, x, {6}, DType::kF32), y);
  const Values values = testing::values_of(y);
  EXPECT_EQ(values[0], 1.0);
  EXPECT_EQ(values[1], 1.0 + 4.0 / 256);
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(values[3], kInfinity);
  EXPECT_EQ(values[4], -kInfinity);
  EXPECT_EQ(values[5], kInfinity);
}

// Half way cases, subnormal values, and from where on fp16 is infinite.
TEST_P(Elementwise, CastRoundsToFp16) {
  const Values x = {1.0 + 0x1p-11, 1.0 + 3 * 0x1p-11, 65519.0,   65520.0,  -65520.0,
                    0x1p-24,       0x1p-25,           0x1.8p-25, -0x1p-30, kNan};
  const Tensor y = testing::make_output(ctx, {10}, DType::kF16);
  const Tensor back = testing::make_output(ctx, {10}, DType::kF32);
  ops::cast(ctx, testing::make_tensor(ctx, x, {10}, DType::kF32), y);
  ops::cast(ctx, y, back);
  const Values expected = {1.0, 1.0 + 4 * 0x1p-11, 65504.0, kInfinity, -kInfinity, 0x1p-24,
                           0.0, 0x1p-24,           -0.0,    kNan};
  const Values values = testing::values_of(back);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(values[i], expected[i]) << i;
  EXPECT_TRUE(std::isnan(values[9]));
}

TEST_P(Elementwise, BiasAndColumnSums) {
  for (const std::int64_t columns : {5, 1037, 1040}) {
    constexpr std::int64_t kRows = 131;
    const Values x = random(1, kRows * columns), bias = random(2, columns);
    const Tensor y = tensor(x, {kRows, columns});
    ops::add_bias(ctx, y, tensor(bias, {columns}));
    Values expected = x, sums(static_cast<std::size_t>(columns), 7.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i] += bias[i % bias.size()];
      sums[i % bias.size()] += x[i];
    }
    testing::expect_close(y, expected, testing::tolerance("elementwise", dtype()), "add_bias");
    std::string bits;
    for (const int threads : {1, 2, 5}) {
      ctx.threads = threads;
      const Tensor total = testing::make_tensor(ctx, Values(static_cast<std::size_t>(columns), 7.0),
                                                {columns}, DType::kF32);
      ops::add_column_sums(ctx, tensor(x, {kRows, columns}), total);
      testing::expect_close(total, sums, testing::tolerance("column_sums", dtype()), "sums");
      if (!bits.empty()) {
        EXPECT_EQ(testing::bits_of(total), bits) << threads;
      }
      bits = testing::bits_of(total);
    }
  }
}

// Rows that begin anywhere have the bits of aligned ones, in any number.
TEST_P(Elementwise, ColumnSumsDoNotFollowTheAddresses) {
  for (const std::int64_t columns : {8, 24, 264}) {
    for (const std::int64_t rows : {1, 7, 31, 33, 64, 65, 700}) {
      const Values x = random(1, rows * columns);
      Values moved = x;
      moved.insert(moved.begin(), 0.0);
      const Tensor aside = tensor(moved, {rows * columns + 1}).flat_range(1, rows * columns + 1);
      const Tensor sums = testing::make_zeros(ctx, {columns}, DType::kF32);
      const Tensor sums_aside = testing::make_zeros(ctx, {columns}, DType::kF32);
      ops::add_column_sums(ctx, tensor(x, {rows, columns}), sums);
      ops::add_column_sums(ctx, aside.reshape({rows, columns}), sums_aside);
      EXPECT_EQ(testing::bits_of(sums), testing::bits_of(sums_aside)) << rows << " x " << columns;
    }
  }
}

// The two forms of GELU.
struct GeluForm {
  void (*forward)(ops::Context&, const Tensor&, const Tensor&);
  void (*backward)(ops::Context&, const Tensor&, const Tensor&, const Tensor&);
  double (*reference)(double);
};
constexpr GeluForm kGelus[] = {
    {ops::gelu, ops::gelu_backward, testing::reference::gelu},
    {ops::gelu_erf, ops::gelu_erf_backward, testing::reference::gelu_erf}};

TEST_P(Elementwise, Gelu) {
  const Values x = random(1, kMany, 3.0), dy = random(2, kMany);
  const Tensor y = output({kMany}), dx = output({kMany});
  for (const GeluForm& form : kGelus) {
    form.forward(ctx, tensor(x, {kMany}), y);
    Values expected(kMany), slope(kMany);
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i] = form.reference(x[i]);
      slope[i] = dy[i] * (form.reference(x[i] + 1e-5) - form.reference(x[i] - 1e-5)) / 2e-5;
    }
    testing::expect_close(y, expected, testing::tolerance("gelu", dtype()), "gelu");
    form.backward(ctx, tensor(x, {kMany}), tensor(dy, {kMany}), dx);
    testing::expect_close(dx, slope, testing::tolerance("gelu", dtype()), "gelu_backward");
    const Tensor in_place = tensor(dy, {kMany});
    form.backward(ctx, tensor(x, {kMany}), in_place, in_place);
    EXPECT_EQ(testing::bits_of(in_place), testing::bits_of(dx));
  }
}

TEST_P(Elementwise, GeluFarOutAndNotFinite) {
  const Values x = {40.0, -40.0, 1e4, -1e4, kNan, 0.0};
  const Tensor y = output({6}), dx = output({6});
  for (const GeluForm& form : kGelus) {
    form.forward(ctx, tensor(x, {6}), y);
    const Values values = testing::values_of(y);
    testing::expect_close(y.flat_range(0, 4), testing::rounded({40, 0, 1e4, 0}, dtype()), 1e-7,
                          "gelu");
    EXPECT_TRUE(std::isnan(values[4]));
    EXPECT_EQ(values[5], 0.0);
    form.backward(ctx, tensor(x, {6}), tensor(Values(6, 1.0), {6}), dx);
    testing::expect_close(dx.flat_range(0, 4), {1, 0, 1, 0}, 1e-7, "gelu_backward");
  }
}

TEST_P(Elementwise, Clamp) {
  Values x = random(1, kMany, 3.0);
  const Values dy = random(2, kMany);
  x[0] = kNan;
  x[1] = 0.0;
  x[2] = 6.0;
  const Tensor y = output({kMany}), dx = output({kMany});
  for (const ops::Clamp& range : {ops::kRelu, ops::kRelu6, ops::kNoClamp}) {
    ops::clamp(ctx, tensor(x, {kMany}), range, y);
    ops::clamp_backward(ctx, y, tensor(dy, {kMany}), range, dx);
    const Values out = testing::values_of(y), d = testing::values_of(dx);
    EXPECT_TRUE(std::isnan(out[0]));
    for (std::size_t i = 1; i < x.size(); ++i) {
      const double low = static_cast<double>(range.low), high = static_cast<double>(range.high);
      ASSERT_EQ(out[i], std::min(std::max(x[i], low), high)) << i;
      ASSERT_EQ(d[i], low < x[i] && x[i] < high ? dy[i] : 0.0) << i;
    }
    const Tensor in_place = tensor(dy, {kMany});
    ops::clamp_backward(ctx, y, in_place, range, in_place);
    EXPECT_EQ(testing::bits_of(in_place), testing::bits_of(dx));
  }
  EXPECT_TRUE(ops::kRelu.cuts() && ops::kRelu6.cuts() && !ops::kNoClamp.cuts());
}

TEST_P(Elementwise, GatedActivations) {
  struct Gated {
    const char* name;
    decltype(&ops::swiglu) forward;
    decltype(&ops::swiglu_backward) backward;
    Values (*reference)(const Values&, std::int64_t);
  };
  const Gated both[] = {{"swiglu", ops::swiglu, ops::swiglu_backward, testing::reference::swiglu},
                        {"geglu", ops::geglu, ops::geglu_backward, testing::reference::geglu}};
  for (const auto& [name, forward, backward, reference] : both) {
    for (const std::int64_t width : {7, 1029, 1032}) {
      constexpr std::int64_t kRows = 5;
      const Values x = random(1, kRows * 2 * width, 2.0), dy = random(2, kRows * width);
      const Tensor y = output({kRows, width});
      forward(ctx, tensor(x, {kRows, 2 * width}), y);
      testing::expect_close(y, reference(x, width), testing::tolerance("gelu", dtype()), name);
      const Tensor dx = output({kRows, 2 * width});
      backward(ctx, tensor(x, {kRows, 2 * width}), tensor(dy, {kRows, width}), dx);
      const Tensor in_place = tensor(x, {kRows, 2 * width});
      backward(ctx, in_place, tensor(dy, {kRows, width}), in_place);
      EXPECT_EQ(testing::bits_of(in_place), testing::bits_of(dx));
      if (width > 100) continue;  // finite differences of every element take the square of that
      const auto loss = [&, of = reference](const Values& v) {
        return testing::inner_product(dy, of(v, width));
      };
      testing::expect_close(dx, testing::finite_differences(loss, x),
                            testing::tolerance("gelu", dtype()), name);
    }
  }
}

class Dropout : public testing::OpsTest {
 protected:
  Dropout() { set({.random_key = 42}); }
  Values drop(const Values& x, std::int64_t rows, std::int64_t columns, std::int64_t first_row) {
    place.first_row = first_row;
    const Tensor y = output({rows, columns});
    ops::dropout(ctx, tensor(x, {rows, columns}), 0.3f, place, y);
    return testing::values_of(y);
  }

  ops::DropoutPlace place{
      .layer = 3,
      .first_row = 0,
      .length = 4,
      .samples = testing::make_tensor(ctx, std::vector<std::int64_t>{10, 7, 8})};
};

TEST_P(Dropout, KeepsTheRestScaledAndFollowsThePlaceAlone) {
  constexpr std::int64_t kRows = 12, kColumns = 1027;
  const Values ones(kRows * kColumns, 1.0);
  const Values y = drop(ones, kRows, kColumns, 0);
  const double kept = testing::rounded({1.0 / (1.0 - 0.3f)}, dtype())[0];
  std::int64_t dropped = 0;
  for (const double value : y) {
    EXPECT_TRUE(value == 0.0 || std::abs(value - kept) < 1e-6);
    dropped += value == 0.0;
  }
  const double share = static_cast<double>(dropped) / static_cast<double>(y.size());
  EXPECT_NEAR(share, 0.3, 0.02);
  // Rows 5 to 9 on their own, on one thread, are the same rows.
  ctx.threads = 1;
  const Values part = drop(Values(5 * kColumns, 1.0), 5, kColumns, 5);
  EXPECT_EQ(part, Values(y.begin() + 5 * kColumns, y.begin() + 10 * kColumns));
  // The header defines it so: row 6 is position 2 of sample 7.
  for (std::uint32_t column = 0; column < kColumns; ++column) {
    const Philox4 draw = philox4x32({column / 4, 2, 7, 3}, 42);
    EXPECT_EQ(y[6 * kColumns + column] != 0.0, philox_uniform(draw[column % 4]) > 0.3f) << column;
  }
}

TEST_P(Dropout, OtherStepsLayersAndPositionsDiffer) {
  const Values ones(4 * 64, 1.0);
  const Values y = drop(ones, 4, 64, 0);
  EXPECT_NE(Values(y.begin(), y.begin() + 64), Values(y.begin() + 64, y.begin() + 128));
  EXPECT_NE(drop(ones, 4, 64, 4), y);  // another sample
  place.layer = 4;
  EXPECT_NE(drop(ones, 4, 64, 0), y);
  place.layer = 3;
  set({.random_key = 43});
  EXPECT_NE(drop(ones, 4, 64, 0), y);
}

TEST_P(Dropout, IsItsOwnBackwardAndChecksItsPlace) {
  const Values dy = random(1, 4 * 9);
  const Values mask = drop(Values(4 * 9, 1.0), 4, 9, 0), dx = drop(dy, 4, 9, 0);
  for (std::size_t i = 0; i < dy.size(); ++i) EXPECT_EQ(dx[i] == 0.0, mask[i] == 0.0);
  EXPECT_THROW(drop(dy, 4, 9, 9), InternalError);  // 13 rows of 3 samples x 4
  ctx.step_state = nullptr;
  EXPECT_THROW(drop(dy, 4, 9, 0), InternalError);
}

// The same draws and the same rounding on every device.
TEST_P(Dropout, SameBitsAsOnACpu) {
  for (const std::int64_t columns : {1027, 1032}) {
    const Values x = random(1, 12 * columns);
    const Tensor y = output({12, columns});
    place.first_row = 0;
    ops::dropout(ctx, tensor(x, {12, columns}), 0.3f, place, y);
    ops::Context cpu = ops::make_cpu_context(1);
    ops::write_step_state(cpu, {.random_key = 42});
    ops::DropoutPlace there = place;
    there.samples = testing::make_tensor(cpu, std::vector<std::int64_t>{10, 7, 8});
    const Tensor expected = testing::make_output(cpu, {12, columns}, dtype());
    ops::dropout(cpu, testing::make_tensor(cpu, x, {12, columns}, dtype()), 0.3f, there, expected);
    EXPECT_TRUE(testing::bits_of(y) == testing::bits_of(expected)) << columns;
  }
}

TEST_P(Elementwise, RoundsAsOnACpu) {
  const Values x = testing::rounded(testing::random_values(1, kMany), DType::kF32);
  const Tensor y = output({kMany});
  ops::cast(ctx, testing::make_tensor(ctx, x, {kMany}, DType::kF32), y);
  ops::Context cpu = ops::make_cpu_context(1);
  const Tensor expected = testing::make_output(cpu, {kMany}, dtype());
  ops::cast(cpu, testing::make_tensor(cpu, x, {kMany}, DType::kF32), expected);
  EXPECT_TRUE(testing::bits_of(y) == testing::bits_of(expected));
}

// Two types in one call, and views that begin at no multiple of 16 bytes.
TEST_P(Elementwise, MixedTypesAndOddAddresses) {
  const Values a = random(1, kMany), b = random(2, kMany);
  Values sum(kMany - 1);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = a[i + 1] + b[i + 1];
  for (const DType other : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor y = testing::make_output(ctx, {kMany}, other);
    ops::add(ctx, tensor(a, {kMany}).flat_range(1, kMany),
             testing::make_tensor(ctx, b, {kMany}, other).flat_range(1, kMany),
             y.flat_range(0, kMany - 1));
    Values expected = sum;
    if (other != DType::kF32) {  // b is rounded to it first
      const Values b16 = testing::rounded(b, other);
      for (std::size_t i = 0; i < sum.size(); ++i) expected[i] = a[i + 1] + b16[i + 1];
    }
    testing::expect_close(y.flat_range(0, kMany - 1), expected,
                          testing::tolerance("elementwise", other), "sum");
    EXPECT_TRUE(std::isnan(testing::values_of(y).back()));
  }
}

TEST_P(Elementwise, NothingToDoIsNoFault) {
  const Tensor none = output({0, 8}), sums = testing::make_zeros(ctx, {8}, DType::kF32);
  ops::fill(ctx, none, 1.0f);
  ops::gelu(ctx, none, none);
  ops::add_bias(ctx, none, output({8}));
  ops::add_column_sums(ctx, none, sums);
  EXPECT_EQ(testing::values_of(sums), Values(8, 0.0));
}

TEST_P(Elementwise, RefusesWhatDoesNotFit) {
  const Tensor x = output({4, 6}), other = output({4, 5});
  EXPECT_THROW(ops::add(ctx, x, other, x), InternalError);
  EXPECT_THROW(ops::add(ctx, x, x, other), InternalError);
  EXPECT_THROW(ops::cast(ctx, x, other), InternalError);
  EXPECT_THROW(ops::add_scaled(ctx, x, 1.0f, testing::make_zeros(ctx, {4, 5}, DType::kF32)),
               InternalError);
  EXPECT_THROW(ops::add_scaled(ctx, x, 1.0f, testing::make_zeros(ctx, {4, 6}, DType::kBF16)),
               InternalError);
  EXPECT_THROW(ops::gelu(ctx, x, other), InternalError);
  EXPECT_THROW(ops::gelu_backward(ctx, x, other, x), InternalError);
  EXPECT_THROW(ops::gelu_erf(ctx, x, other), InternalError);
  EXPECT_THROW(ops::gelu_erf_backward(ctx, x, other, x), InternalError);
  EXPECT_THROW(ops::clamp(ctx, x, ops::kRelu, other), InternalError);
  EXPECT_THROW(ops::clamp_backward(ctx, x, other, ops::kRelu, x), InternalError);
  EXPECT_THROW(ops::swiglu(ctx, x, other), InternalError);
  EXPECT_THROW(ops::add_bias(ctx, x, output({5})), InternalError);
  EXPECT_THROW(ops::fill(ctx, ctx.allocate({3}, DType::kI32), 1.0f), InternalError);
  EXPECT_THROW(ops::scale(ctx, Tensor(), 1.0f), InternalError);
  EXPECT_THROW(ops::add_column_sums(ctx, x, testing::make_zeros(ctx, {6}, DType::kBF16)),
               InternalError);
}

TRIREME_FOR_EACH_DTYPE(Elementwise);
TRIREME_FOR_EACH_DTYPE(Dropout);

TEST(InstructionSet, FollowsTheEnvironment) {
  const char* asked = std::getenv("TRIREME_ISA");
  const std::string name(ops::instruction_set(ops::make_cpu_context(1)));
  if (asked == nullptr) return;
  if (std::string(asked) == "baseline") {
    EXPECT_EQ(name, "baseline x86-64");
  }
  if (std::string(asked) == "avx2") {
    EXPECT_NE(name, "AVX-512");
  }
}

}  // namespace
}  // namespace trireme
