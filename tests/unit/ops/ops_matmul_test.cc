#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "trireme/ops/block_scaled.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/matmul.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using ops::Transpose;
using testing::Values;

class Matmul : public testing::OpsTest {
 protected:
  // Every transposition, with and without accumulation, into fp32 and into the operands' type.
  double gelu_tolerance() const {
    const bool by_library = ctx.device.kind == DeviceKind::kCuda;
    return testing::tolerance(by_library ? "linear_gelu" : "linear", dtype());
  }

  void check(std::int64_t m, std::int64_t n, std::int64_t k) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const bool accumulate : {false, true}) {
          for (const DType c_dtype : {DType::kF32, dtype()})
            check(m, n, k, ta, tb, accumulate, c_dtype);
        }
      }
    }
  }

  void check(std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb, bool accumulate,
             DType c_dtype) {
    const Values a = random(1, m * k);
    const Values b = random(2, k * n);
    const Values old = testing::rounded(testing::random_values(3, m * n), c_dtype);
    const Tensor c = accumulate ? testing::make_tensor(ctx, old, {m, n}, c_dtype)
                                : testing::make_output(ctx, {m, n}, c_dtype);
    ops::matmul(ctx, tensor(a, ta ? Shape{k, m} : Shape{m, k}),
                ta ? Transpose::kYes : Transpose::kNo, tensor(b, tb ? Shape{n, k} : Shape{k, n}),
                tb ? Transpose::kYes : Transpose::kNo, accumulate ? 1.0f : 0.0f, c);
    Values expected = testing::reference::matmul(a, ta, b, tb, m, n, k);
    for (std::size_t i = 0; accumulate && i < expected.size(); ++i) expected[i] += old[i];
    const bool twice = accumulate && ctx.device.kind == DeviceKind::kCuda;
    testing::expect_close(c, expected,
                          testing::tolerance(c_dtype == DType::kF32 ? "matmul_fp32_out"
                                             : twice                ? "matmul_added"
                                                                    : "matmul",
                                             dtype()),
                          "m " + std::to_string(m) + " ta " + std::to_string(ta) + " tb " +
                              std::to_string(tb) + " accumulate " + std::to_string(accumulate));
  }
};

TEST_P(Matmul, OddShapes) {
  check(37, 53, 29);
  check(64, 128, 32);
}
TEST_P(Matmul, FewRows) {
  check(1, 67, 45);
  check(3, 130, 64);
  check(2, 700, 90);
}
TEST_P(Matmul, OneColumnAndOneTerm) {
  check(19, 1, 7);
  check(5, 6, 1);
}
TEST_P(Matmul, SeveralBlocksOfRowsAndColumns) {
  check(790, 9, 21);
  check(10, 790, 21);
  check(777, 400, 13, false, true, false, DType::kF32);
  check(400, 777, 13, true, false, true, DType::kF32);
}
TEST_P(Matmul, ManyTermsInSeveralBlocks) {
  // More than the 2^20 elements that the converting path takes at once.
  check(3, 130, 16400, false, true, true, DType::kF32);
  check(130, 3, 16400, true, false, false, dtype());
  // Few rows and columns, whose sums threads share.
  check(33, 20, 8200, true, false, true, DType::kF32);
  check(20, 130, 4500, true, true, false, DType::kF32);
}

TEST_P(Matmul, EmptyExtents) {
  const Tensor c = output({3, 4});
  ops::matmul(ctx, ctx.allocate({3, 0}, dtype()), Transpose::kNo, ctx.allocate({0, 4}, dtype()),
              Transpose::kNo, 0.0f, c);
  testing::expect_close(c, Values(12, 0.0), 0.0, "k = 0");
  ops::matmul(ctx, ctx.allocate({0, 5}, dtype()), Transpose::kNo, ctx.allocate({5, 4}, dtype()),
              Transpose::kNo, 0.0f, ctx.allocate({0, 4}, dtype()));
}

TEST_P(Matmul, NotANumberStaysOne) {
  Values a = random(4, 6);
  a[1] = std::numeric_limits<double>::quiet_NaN();
  const Tensor c = output({2, 2});
  ops::matmul(ctx, tensor(a, {2, 3}), Transpose::kNo, tensor(random(5, 6), {3, 2}), Transpose::kNo,
              0.0f, c);
  const Values values = testing::values_of(c);
  EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1]));
  EXPECT_FALSE(std::isnan(values[2]) || std::isnan(values[3]));
}

TEST_P(Matmul, SameBitsEachTime) {
  const Tensor a = tensor(random(6, 65 * 300), {65, 300});
  const Tensor b = tensor(random(7, 70 * 300), {70, 300});
  std::string bits;
  for (int run = 0; run < 3; ++run) {
    const Tensor c = output({65, 70});
    ops::matmul(ctx, a, Transpose::kNo, b, Transpose::kYes, 0.0f, c);
    if (run > 0) {
      EXPECT_EQ(testing::bits_of(c), bits);
    }
    bits = testing::bits_of(c);
  }
}

TEST_P(Matmul, SameBitsWithAnyNumberOfThreads) {
  if (ops::matmul_description(ctx, DType::kF32).rfind("own", 0) != 0) {
    GTEST_SKIP() << "only our own kernels promise it";
  }
  for (const auto& [m, n, k] : {std::array{600, 400, 30}, std::array{24, 24, 9000},
                                std::array{2, 700, 90}, std::array{130, 770, 300}}) {
    const Tensor a = tensor(random(6, m * k), {m, k});
    const Tensor b = tensor(random(7, n * k), {n, k});
    std::string bits;
    for (const int threads : {1, 2, 5}) {
      ctx.threads = threads;
      const Tensor c = output({m, n});
      ops::matmul(ctx, a, Transpose::kNo, b, Transpose::kYes, 0.0f, c);
      if (threads > 1) {
        EXPECT_EQ(testing::bits_of(c), bits) << m << " x " << n << " x " << k;
      }
      bits = testing::bits_of(c);
    }
  }
}

TEST_P(Matmul, RefusesWhatDoesNotFit) {
  const Tensor a = output({3, 4});
  const Tensor b = output({4, 5});
  const Tensor c = output({3, 5});
  const auto product = [&](const Tensor& x, const Tensor& y, float beta, const Tensor& z) {
    ops::matmul(ctx, x, Transpose::kNo, y, Transpose::kNo, beta, z);
  };
  EXPECT_THROW(product(a, a, 0.0f, c), InternalError);
  EXPECT_THROW(product(a, b, 0.5f, c), InternalError);
  EXPECT_THROW(product(a, b, 0.0f, output({5, 3})), InternalError);
  EXPECT_THROW(product(a, b.reshape({2, 2, 5}), 0.0f, c), InternalError);
  EXPECT_THROW(product(a, Tensor(), 0.0f, c), InternalError);
  EXPECT_THROW(product(a, ctx.allocate({4, 5}, DType::kI32), 0.0f, c), InternalError);
  const DType other = dtype() == DType::kF32 ? DType::kBF16 : DType::kF32;
  EXPECT_THROW(product(a, ctx.allocate({4, 5}, other), 0.0f, c), InternalError);
}

TEST_P(Matmul, LinearAndItsGradients) {
  constexpr std::int64_t kRows = 13, kIn = 19, kOut = 23;
  const Values x = random(1, kRows * kIn), weight = random(2, kOut * kIn), bias = random(3, kOut);
  const Values dy = random(4, kRows * kOut);
  const Tensor y = output({kRows, kOut});
  const Tensor x_t = tensor(x, {kRows, kIn}), weight_t = tensor(weight, {kOut, kIn});
  const Tensor dy_t = tensor(dy, {kRows, kOut});
  const auto forward = [&](const Values& in, const Values& w, const Values& b) {
    Values out = testing::reference::matmul(in, false, w, true, kRows, kOut, kIn);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += b[i % b.size()];
    return out;
  };
  ops::linear(ctx, x_t, weight_t, tensor(bias, {kOut}), y);
  testing::expect_close(y, forward(x, weight, bias), testing::tolerance("linear", dtype()), "y");
  ops::linear(ctx, x_t, weight_t, Tensor(), y);
  testing::expect_close(y, forward(x, weight, Values(kOut, 0.0)),
                        testing::tolerance("linear", dtype()), "y without bias");

  const Tensor dx = output({kRows, kIn});
  ops::linear_backward_input(ctx, dy_t, weight_t, dx);
  testing::expect_close(
      dx,
      testing::finite_differences(
          [&](const Values& in) { return testing::inner_product(dy, forward(in, weight, bias)); },
          x),
      testing::tolerance("linear", dtype()), "dx");
  const Values old(kOut * kIn, 1.5), old_bias(kOut, -2.5);
  const Tensor dweight = testing::make_tensor(ctx, old, {kOut, kIn}, DType::kF32);
  const Tensor dbias = testing::make_tensor(ctx, old_bias, {kOut}, DType::kF32);
  ops::linear_backward_weight(ctx, dy_t, x_t, dweight, dbias);
  Values expected = testing::finite_differences(
      [&](const Values& w) { return testing::inner_product(dy, forward(x, w, bias)); }, weight);
  for (double& value : expected) value += 1.5;
  testing::expect_close(dweight, expected, testing::tolerance("matmul_fp32_out", dtype()),
                        "dweight");
  expected = testing::finite_differences(
      [&](const Values& b) { return testing::inner_product(dy, forward(x, weight, b)); }, bias);
  for (double& value : expected) value -= 2.5;
  testing::expect_close(dbias, expected, testing::tolerance("column_sums", dtype()), "dbias");
  const Tensor alone = testing::make_tensor(ctx, old_bias, {kOut}, DType::kF32);
  ops::linear_backward_weight(ctx, dy_t, x_t, Tensor(), alone);
  testing::expect_close(alone, expected, testing::tolerance("column_sums", dtype()), "dbias alone");
}

TEST_P(Matmul, LinearWithFewRowsAndBiasOfAnotherType) {
  for (const std::int64_t rows : {1, 3, 11}) {
    for (const DType bias_dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Values x = random(1, rows * 19), weight = random(2, 23 * 19);
      const Values bias = testing::rounded(testing::random_values(3, 23), bias_dtype);
      const Tensor y = output({rows, 23});
      ops::linear(ctx, tensor(x, {rows, 19}), tensor(weight, {23, 19}),
                  testing::make_tensor(ctx, bias, {23}, bias_dtype), y);
      Values expected = testing::reference::matmul(x, false, weight, true, rows, 23, 19);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % 23];
      testing::expect_close(y, expected, testing::tolerance("linear", dtype()), "y");
    }
  }
  EXPECT_THROW(ops::linear(ctx, output({2, 4}), output({3, 4}), output({4}), output({2, 3})),
               InternalError);
}

TEST_P(Matmul, LinearAdded) {
  constexpr std::int64_t kRows = 13, kIn = 19, kOut = 24;
  const Values x = random(1, kRows * kIn), weight = random(2, kOut * kIn), bias = random(3, kOut);
  const Values addend = random(4, kRows * kOut);
  const Tensor x_t = tensor(x, {kRows, kIn}), weight_t = tensor(weight, {kOut, kIn});
  const Tensor addend_t = tensor(addend, {kRows, kOut}), y = output({kRows, kOut});
  for (const bool biased : {true, false}) {
    Values expected = testing::reference::matmul(x, false, weight, true, kRows, kOut, kIn);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += addend[i] + (biased ? bias[i % bias.size()] : 0.0);
    }
    ops::linear_added(ctx, x_t, weight_t, biased ? tensor(bias, {kOut}) : Tensor(), addend_t, y);
    testing::expect_close(y, expected, testing::tolerance("linear", dtype()), "y");
    testing::expect_close(addend_t, addend, 0.0, "the addend stays");
  }
  const auto refuses = [&](const Tensor& of, const Tensor& to) {
    EXPECT_THROW(ops::linear_added(ctx, x_t, weight_t, Tensor(), of, to), InternalError);
  };
  refuses(y, y);
  refuses(output({kRows, kIn}), y);
  refuses(ctx.allocate(y.shape(), dtype() == DType::kF32 ? DType::kBF16 : DType::kF32), y);
}

// Widths that a library fuses on a GPU, and one that it does not.
TEST_P(Matmul, LinearGelu) {
  for (const std::int64_t out : {24, 64, 23}) {
    constexpr std::int64_t kRows = 13, kIn = 19;
    const Values x = random(1, kRows * kIn), weight = random(2, out * kIn, 0.3);
    const Values bias = random(3, out);
    const Tensor x_t = tensor(x, {kRows, kIn}), weight_t = tensor(weight, {out, kIn});
    for (const bool biased : {true, false}) {
      Values before = testing::reference::matmul(x, false, weight, true, kRows, out, kIn);
      for (std::size_t i = 0; biased && i < before.size(); ++i) before[i] += bias[i % bias.size()];
      Values after = before;
      for (double& value : after) value = testing::reference::gelu(value);
      const Tensor pre = output({kRows, out}), y = output({kRows, out});
      const Tensor bias_t = biased ? tensor(bias, {out}) : Tensor();
      if (ops::linear_gelu(ctx, x_t, weight_t, bias_t, pre, y)) {
        const Tensor again = output({kRows, out});
        ops::gelu(ctx, pre, again);
        EXPECT_EQ(testing::bits_of(again), testing::bits_of(y));
      } else {
        EXPECT_EQ(ctx.device.kind, DeviceKind::kCuda);
      }
      testing::expect_close(pre, before, testing::tolerance("linear", dtype()), "pre");
      testing::expect_close(y, after, gelu_tolerance(), "y");
    }
  }
}

TEST_P(Matmul, LinearGeluGradients) {
  for (const std::int64_t in : {24, 64, 23}) {
    constexpr std::int64_t kRows = 13, kOut = 19;
    const Values dy = random(1, kRows * kOut), weight = random(2, kOut * in);
    const Values pre = random(3, kRows * in);
    const Values slope = testing::finite_differences(
        [](const Values& at) {
          double sum = 0.0;
          for (const double value : at) sum += testing::reference::gelu(value);
          return sum;
        },
        pre);
    Values expected = testing::reference::matmul(dy, false, weight, false, kRows, in, kOut);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= slope[i];
    const Tensor dy_t = tensor(dy, {kRows, kOut}), weight_t = tensor(weight, {kOut, in});
    const Tensor pre_t = tensor(pre, {kRows, in}), dpre = output({kRows, in});
    const Tensor dbias = testing::make_tensor(ctx, Values(in, -2.5), {in}, DType::kF32);
    ops::linear_backward_input_gelu(ctx, dy_t, weight_t, pre_t, dpre, dbias);
    testing::expect_close(dpre, expected, gelu_tolerance(), "dpre");
    // The sums of dpre as it is kept, in fp32 whatever its type.
    Values sums(in, -2.5);
    const Values kept = testing::values_of(dpre);
    for (std::size_t i = 0; i < kept.size(); ++i) sums[i % sums.size()] += kept[i];
    testing::expect_close(dbias, sums, testing::tolerance("column_sums", dtype()), "dbias");
    const Tensor without = output({kRows, in});
    ops::linear_backward_input_gelu(ctx, dy_t, weight_t, pre_t, without, Tensor());
    testing::expect_close(without, expected, gelu_tolerance(), "without");
  }
}
// Whatever a library does on the way to the bias's gradient, of many rows.
TEST_P(Matmul, LinearGeluGradientsHaveTheSameBitsAgain) {
  constexpr std::int64_t kRows = 700, kOut = 16, kIn = 32;
  const Tensor dy = tensor(random(1, kRows * kOut), {kRows, kOut});
  const Tensor weight = tensor(random(2, kOut * kIn), {kOut, kIn});
  const Tensor pre = tensor(random(3, kRows * kIn), {kRows, kIn});
  std::vector<std::string> bits;
  for (int run = 0; run < 5; ++run) {
    const Tensor dpre = output({kRows, kIn});
    const Tensor dbias = testing::make_tensor(ctx, Values(kIn, 0.5), {kIn}, DType::kF32);
    ops::linear_backward_input_gelu(ctx, dy, weight, pre, dpre, dbias);
    bits.push_back(testing::bits_of(dpre) + testing::bits_of(dbias));
    EXPECT_EQ(bits.back(), bits.front());
  }
}

TEST_P(Matmul, LinearGeluRefusesWhatDoesNotFit) {
  const Tensor x = output({3, 4}), weight = output({8, 4}), y = output({3, 8});
  EXPECT_THROW(ops::linear_gelu(ctx, x, weight, Tensor(), output({3, 7}), y), InternalError);
  EXPECT_THROW(ops::linear_gelu(ctx, x, weight, output({7}), output({3, 8}), y), InternalError);
  const DType other = dtype() == DType::kF32 ? DType::kBF16 : DType::kF32;
  EXPECT_THROW(ops::linear_gelu(ctx, x, weight, Tensor(), ctx.allocate({3, 8}, other), y),
               InternalError);
  const Tensor down = output({4, 8});
  EXPECT_THROW(ops::linear_backward_input_gelu(ctx, x, down, output({4, 8}), y, Tensor()),
               InternalError);
  EXPECT_THROW(ops::linear_backward_input_gelu(ctx, x, down, y, output({3, 8}), output({7})),
               InternalError);
}

TRIREME_FOR_EACH_DTYPE(Matmul);

// A context whose products are those of an engine, as TRIREME_MATMUL names it.
ops::Context context_of(const char* engine, int threads) {
  const char* asked = std::getenv("TRIREME_MATMUL");
  const std::string before = asked == nullptr ? "" : asked;
  setenv("TRIREME_MATMUL", engine, 1);
  const auto restore = [&] {
    if (asked == nullptr) {
      unsetenv("TRIREME_MATMUL");
    } else {
      setenv("TRIREME_MATMUL", before.c_str(), 1);
    }
  };
  try {
    ops::Context ctx = ops::make_cpu_context(threads);
    restore();
    return ctx;
  } catch (...) {
    restore();
    throw;
  }
}

TEST(MatmulEngine, RefusesALibraryThatItDoesNotKnow) {
  EXPECT_THROW(context_of("mkl", 1), ConfigError);
  EXPECT_THROW(context_of("onednn-gemm", 1), ConfigError);
  EXPECT_THROW(context_of("", 1), ConfigError);
}

// The bits tell which engine computed a product, where two of them differ in any.
TEST(MatmulEngine, TheShapeOfAProductDecidesWhatComputesIt) {
  struct Case {
    std::int64_t m, n, k;
    Transpose a, b;
    float keep;  // of what was there
    const char* engine;
  };
  constexpr Transpose no = Transpose::kNo, yes = Transpose::kYes;
  for (const Case& one :
       {Case{40, 300, 270, no, yes, 0.0f, "own"}, Case{40, 300, 270, no, no, 0.0f, "own"},
        Case{300, 270, 40, yes, no, 1.0f, "own"}, Case{5, 1000, 790, no, yes, 0.0f, "own"},
        Case{1, 1000, 990, no, yes, 0.0f, "own"},
        Case{1, 1000, 1010, no, yes, 0.0f, "onednn-sgemm"},
        Case{4, 500, 510, no, no, 0.0f, "onednn-sgemm"},
        Case{510, 500, 4, yes, no, 1.0f, "onednn-sgemm"},
        Case{4, 1300, 1100, no, yes, 0.0f, "onednn-sgemm"},
        Case{5, 1300, 1100, no, yes, 0.0f, "onednn-primitives"},
        Case{90, 300, 270, no, yes, 0.0f, "onednn-primitives"},
        Case{90, 300, 270, no, no, 0.0f, "onednn-sgemm"},
        Case{300, 270, 90, yes, no, 1.0f, "onednn-sgemm"}}) {
    const auto bits = [&](const char* engine) {
      ops::Context ctx = context_of(engine, 2);
      const auto values = [&](std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
        return testing::make_tensor(ctx, testing::random_values(seed, rows * columns),
                                    {rows, columns}, DType::kF32);
      };
      const Tensor a = one.a == yes ? values(1, one.k, one.m) : values(1, one.m, one.k);
      const Tensor b = one.b == yes ? values(2, one.n, one.k) : values(2, one.k, one.n);
      const Tensor c = values(3, one.m, one.n);
      ops::matmul(ctx, a, one.a, b, one.b, one.keep, c);
      return testing::bits_of(c);
    };
    EXPECT_EQ(bits("onednn"), bits(one.engine)) << one.m << " x " << one.n << " x " << one.k;
  }
}

// Products of e4m3 with a scale for each block.
class ScaledMatmul : public ::testing::Test {
 protected:
  struct Operand {
    ops::BlockScaled matrix;
    Values values;  // (rows, columns)
  };

  void SetUp() override {
    try {
      ops::check_scaled_products(ctx);
    } catch (const CudaError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // Columns differ in size, so that the scales of neighbouring blocks do.
  Operand operand(std::uint64_t seed, std::int64_t rows, std::int64_t columns,
                  ops::ScaledBlocks blocks, bool turned) {
    Values values = testing::random_values(seed, rows * columns);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      values[i] = std::ldexp(
          values[i], static_cast<int>((at % columns / 128 * 3 + at / columns / 64 * 2) % 9));
    }
    const Tensor x = testing::make_tensor(ctx, values, {rows, columns}, DType::kBF16);
    const std::int64_t of_rows = turned ? columns : rows, of_columns = turned ? rows : columns;
    const ops::BlockScaled matrix = ops::allocate_scaled(ctx, of_rows, of_columns, blocks);
    ops::scale_blocks(ctx, x, turned ? ops::BlockScaled() : matrix,
                      turned ? matrix : ops::BlockScaled());
    return {matrix, values_of(matrix)};
  }

  // Codes times scales.
  static Values values_of(const ops::BlockScaled& of) {
    const std::string codes = testing::bits_of(of.codes);
    const Values scales = testing::values_of(of.scales);
    const std::int64_t rows = of.codes.shape()[0], columns = of.codes.shape()[1];
    const std::int64_t wide = of.scales.shape()[1];
    Values values(codes.size());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) / columns;
      const std::int64_t block = static_cast<std::int64_t>(i) % columns / 128;
      E4M3 code;
      code.bits = static_cast<std::uint8_t>(codes[i]);
      values[i] = double{static_cast<float>(code)} *
                  scales[static_cast<std::size_t>(of.blocks == ops::ScaledBlocks::kRows
                                                      ? block * rows + row
                                                      : row / 128 * wide + block)];
    }
    return values;
  }

  // The sums of tensor cores lose bits.
  double tolerance(DType c_dtype) const {
    if (c_dtype != DType::kF32) return testing::tolerance("matmul", DType::kBF16);
    return ctx.cuda ? 5e-4 : testing::tolerance("matmul_fp32_out", DType::kBF16);
  }

  ops::Context ctx = testing::make_test_context();
};

TEST_F(ScaledMatmul, MultipliesCodesTimesScales) {
  using enum ops::ScaledBlocks;
  struct Case {
    std::int64_t m, n, k;
    ops::ScaledBlocks a, b;
    bool turned_a, turned_b;
  };
  // A forward, an input's gradient, a weight's, one whose tiles are in a.
  for (const Case& one : {Case{128, 256, 640, kRows, kTiles, false, false},
                          Case{128, 256, 256, kRows, kTiles, false, true},
                          Case{256, 128, 128, kRows, kRows, true, true},
                          Case{256, 128, 256, kTiles, kRows, true, false}}) {
    const auto [m, n, k, kind_a, kind_b, turned_a, turned_b] = one;
    const Operand a = turned_a ? operand(1, k, m, kind_a, true) : operand(1, m, k, kind_a, false);
    const Operand b = turned_b ? operand(2, k, n, kind_b, true) : operand(2, n, k, kind_b, false);
    const Values product = testing::reference::matmul(a.values, false, b.values, true, m, n, k);
    const Tensor c = testing::make_output(ctx, {m, n}, DType::kBF16);
    ops::scaled_matmul(ctx, a.matrix, b.matrix, Tensor(), 0.0f, c);
    testing::expect_close(c, product, tolerance(DType::kBF16), "product");
    const Values old = testing::rounded(testing::random_values(3, m * n, 100.0), DType::kF32);
    const Tensor sum = testing::make_tensor(ctx, old, {m, n}, DType::kF32);
    ops::scaled_matmul(ctx, a.matrix, b.matrix, Tensor(), 1.0f, sum);
    Values expected = product;
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += old[i];
    testing::expect_close(sum, expected, tolerance(DType::kF32), "sum");
  }
}

TEST_F(ScaledMatmul, AddsABias) {
  const Operand x = operand(1, 128, 256, ops::ScaledBlocks::kRows, false);
  const Operand weight = operand(2, 384, 256, ops::ScaledBlocks::kTiles, false);
  const Values bias = testing::rounded(testing::random_values(3, 384, 50.0), DType::kBF16);
  const Tensor y = testing::make_output(ctx, {128, 384}, DType::kBF16);
  ops::scaled_matmul(ctx, x.matrix, weight.matrix,
                     testing::make_tensor(ctx, bias, {384}, DType::kBF16), 0.0f, y);
  Values expected = testing::reference::matmul(x.values, false, weight.values, true, 128, 384, 256);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % 384];
  testing::expect_close(y, expected, testing::tolerance("linear", DType::kBF16), "biased");
}

TEST_F(ScaledMatmul, ABlockThatIsNotFiniteSpoilsItsSumsAlone) {
  Values values = testing::random_values(1, 128 * 256);
  values[5 * 256 + 200] = std::numeric_limits<double>::infinity();
  const ops::BlockScaled a = ops::allocate_scaled(ctx, 128, 256, ops::ScaledBlocks::kRows);
  ops::scale_blocks(ctx, testing::make_tensor(ctx, values, {128, 256}, DType::kBF16), a, {});
  const Operand b = operand(2, 128, 256, ops::ScaledBlocks::kTiles, false);
  const Tensor c = testing::make_output(ctx, {128, 128}, DType::kF32);
  ops::scaled_matmul(ctx, a, b.matrix, Tensor(), 0.0f, c);
  const Values product = testing::values_of(c);
  for (std::size_t i = 0; i < product.size(); ++i) {
    ASSERT_EQ(std::isnan(product[i]), i / 128 == 5) << i;
  }
}

TEST_F(ScaledMatmul, OperandsAreChecked) {
  using enum ops::ScaledBlocks;
  const Operand rows = operand(1, 128, 256, kRows, false);
  const Operand tiles = operand(2, 128, 256, kTiles, false);
  const Operand others = operand(3, 128, 128, kTiles, false);
  const Tensor c = testing::make_output(ctx, {128, 128}, DType::kF32);
  const auto refused = [&](const ops::BlockScaled& a, const ops::BlockScaled& b, float beta) {
    EXPECT_THROW(ops::scaled_matmul(ctx, a, b, Tensor(), beta, c), InternalError);
  };
  refused(tiles.matrix, tiles.matrix, 0.0f);
  refused(rows.matrix, others.matrix, 0.0f);
  refused(rows.matrix, tiles.matrix, 0.5f);
  ops::BlockScaled turned = rows.matrix;
  turned.blocks = kTiles;  // with scales of the other shape
  refused(turned, rows.matrix, 0.0f);
}

TEST(MatmulEngine, NamesItsLibrary) {
  const ops::Context ctx = ops::make_cpu_context(1);
  EXPECT_FALSE(ops::matmul_description(ctx, DType::kF32).empty());
  EXPECT_FALSE(ops::matmul_description(ctx, DType::kBF16).empty());
  EXPECT_FALSE(ops::matmul_description(ctx, DType::kF16).empty());
  RecordProperty("fp32", std::string(ops::matmul_description(ctx, DType::kF32)));
  const char* asked = std::getenv("TRIREME_MATMUL");
  if (asked != nullptr) {
    const std::string library = std::string(asked) == "own" ? "own kernels" : "oneDNN";
    EXPECT_EQ(ops::matmul_description(ctx, DType::kF32).substr(0, library.size()), library);
  }
}

}  // namespace
}  // namespace trireme
