#include <cmath>
#include <iterator>
#include <string>

#include "trireme/ops/normed_depthwise.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using ops::ConvolutionShape;
using testing::Values;

constexpr float kEpsilon = 1e-3f;

ConvolutionShape depthwise(std::int64_t batch, std::int64_t height, std::int64_t width,
                           std::int64_t channels, std::int64_t stride, std::int64_t padding = 1) {
  return {batch, height, width, channels, channels, 3, 3, stride, padding, channels};
}

struct Named {
  const char* name;
  ConvolutionShape shape;
};

const Named kShapes[] = {
    {"chunks that are not whole", depthwise(2, 6, 5, 83, 1)},
    {"a stride", depthwise(2, 7, 8, 32, 2)},
    {"several tiles", depthwise(2, 19, 31, 70, 1)},
    {"several tiles with a stride", depthwise(2, 33, 31, 136, 2)},
    {"even extents with a stride", depthwise(1, 18, 16, 24, 2)},
    {"one pixel", depthwise(3, 1, 1, 8, 1)},
    {"one pixel with a stride", depthwise(1, 1, 1, 3, 2)},
    {"one line", depthwise(1, 1, 40, 16, 1)},
    {"inner pixels", depthwise(2, 9, 17, 16, 1, 0)},
    {"inner pixels with a stride", depthwise(1, 10, 9, 16, 2, 0)},
    {"beyond the edges", depthwise(1, 5, 6, 16, 1, 3)},
    {"beyond the edges with a stride", depthwise(1, 5, 6, 16, 2, 2)},
    {"several tiles of a block", depthwise(175, 2, 2, 136, 1)},
    {"several tiles of a block with a stride", depthwise(175, 3, 2, 136, 2)},
};

Tensor rows_of(const Tensor& x) {
  return x.reshape({x.shape().rows(), x.shape()[-1]});
}

class NormedDepthwise : public testing::OpsTest {
 protected:
  // A convolution of random values with a norm before it that cuts some of them.
  struct Case {
    ConvolutionShape shape;
    Values in, of_y;
    Tensor x, weight, dy;
    ops::BatchNorm norm;
    Tensor normed;  // what the norm makes of x
  };

  Case make(const ConvolutionShape& shape, const ops::Clamp& clamp) {
    const std::int64_t channels = shape.in_channels;
    Case made;
    made.shape = shape;
    made.in = random(1, shape.input().elements(), 2.0);
    made.of_y = random(2, shape.output().elements());
    made.x = tensor(made.in, shape.input());
    made.weight = tensor(random(3, shape.weight().elements(), 0.3), shape.weight());
    made.dy = tensor(made.of_y, shape.output());
    made.norm = {fp32({2, channels}), tensor(random(4, channels), {channels}),
                 tensor(random(5, channels), {channels}), kEpsilon, clamp};
    made.normed = output(shape.input());
    ops::batch_moments(ctx, rows_of(made.x), made.norm.moments);
    ops::batch_norm(ctx, made.norm, rows_of(made.x), Tensor(), rows_of(made.normed));
    return made;
  }
  Tensor fp32(const Shape& shape) { return testing::make_output(ctx, shape, DType::kF32); }
  Tensor zeros(const Shape& shape) { return testing::make_zeros(ctx, shape, DType::kF32); }
  double tolerance(const std::string& op) const { return testing::tolerance(op, dtype()); }
};

TEST_P(NormedDepthwise, IsTheConvolutionOfTheNormAndHasItsMoments) {
  for (const auto& [name, shape] : kShapes) {
    const Case c = make(shape, ops::kRelu6);
    const Tensor y = output(shape.output()), moments = fp32({2, shape.in_channels});
    ops::normed_depthwise(ctx, shape, c.norm, c.x, c.weight, y, moments);
    testing::expect_close(y,
                          testing::reference::convolution(shape, testing::values_of(c.normed),
                                                          testing::values_of(c.weight)),
                          tolerance("convolution"), name);
    testing::expect_close(
        moments, testing::reference::batch_moments(testing::values_of(y), shape.in_channels),
        tolerance("batch_norm_saved"), std::string(name) + ", moments");
    const Tensor alone = output(shape.output());
    ops::normed_depthwise(ctx, shape, c.norm, c.x, c.weight, alone, Tensor());
    EXPECT_EQ(testing::bits_of(alone), testing::bits_of(y)) << name;
  }
}

TEST_P(NormedDepthwise, NeedsNoNormBefore) {
  for (const auto& [name, shape] : kShapes) {
    const Case c = make(shape, ops::kRelu6);
    const Tensor y = output(shape.output()), moments = fp32({2, shape.in_channels});
    const Tensor same = output(shape.output());
    ops::normed_depthwise(ctx, shape, {}, c.x, c.weight, y, moments);
    ops::convolution(ctx, shape, c.x, c.weight, Tensor(), same);
    EXPECT_EQ(testing::bits_of(y), testing::bits_of(same)) << name;
    testing::expect_close(
        moments, testing::reference::batch_moments(testing::values_of(y), shape.in_channels),
        tolerance("batch_norm_saved"), name);
  }
}

// In fp32 a sum of squares would keep no digit of this variance.
TEST_P(NormedDepthwise, ALargeOffsetKeepsTheVariance) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "16 bits keep no deviation at this offset";
  const ConvolutionShape shape = depthwise(40, 20, 20, 9, 1, 0);
  Values in = random(1, shape.input().elements()), weight = random(3, shape.weight().elements());
  for (double& value : in) value += 1e4;
  for (double& value : weight) value = std::abs(value);
  const Tensor y = output(shape.output()), moments = fp32({2, shape.in_channels});
  ops::normed_depthwise(ctx, shape, {}, tensor(in, shape.input()), tensor(weight, shape.weight()),
                        y, moments);
  const Values expected =
      testing::reference::batch_moments(testing::values_of(y), shape.in_channels);
  const Values got = testing::values_of(moments);
  // A GPU rounds the means of parts at this offset, once; a CPU those of many blocks.
  const double deviation = ctx.device.kind == DeviceKind::kCpu ? 1e-2 : 1e-4;
  for (std::size_t c = 0; c < 9; ++c) {
    EXPECT_NEAR(got[c], expected[c], 1e-6 * expected[c]) << c;
    EXPECT_NEAR(got[9 + c], expected[9 + c], deviation * expected[9 + c]) << c;
  }
}

TEST_P(NormedDepthwise, Gradients) {
  constexpr ops::Clamp kClamps[] = {ops::kNoClamp, ops::kRelu, {-0.5f, 1.0f}};
  std::size_t number = 0;
  for (const auto& [name, shape] : kShapes) {
    const ops::Clamp& clamp = kClamps[number++ % std::size(kClamps)];
    const Case c = make(shape, clamp);
    const Tensor dnormed = output(shape.input()), sums = fp32({2, shape.in_channels});
    const Tensor dweight = zeros(shape.weight());
    ops::normed_depthwise_backward(ctx, shape, c.norm, c.dy, c.x, c.weight, dnormed, sums, dweight);
    const auto expected = testing::reference::convolution_backward(
        shape, testing::values_of(c.normed), testing::values_of(c.weight), c.of_y);
    testing::expect_close(dnormed, expected.x, tolerance("convolution"), name);
    testing::expect_close(dweight, expected.weight, tolerance("convolution_backward_weight"), name);
    const Values m = testing::values_of(c.norm.moments), g = testing::values_of(dnormed);
    const Values w = testing::values_of(c.norm.weight), b = testing::values_of(c.norm.bias);
    const auto n = static_cast<std::size_t>(shape.in_channels);
    Values of_norm(2 * n, 0.0);
    for (std::size_t i = 0; i < c.in.size(); ++i) {
      const std::size_t at = i % n;
      const double scaled = (c.in[i] - m[at]) / std::sqrt(m[n + at] + kEpsilon);
      const double made = scaled * w[at] + b[at];
      if (made <= clamp.low || made >= clamp.high) continue;
      of_norm[at] += g[i];
      of_norm[n + at] += g[i] * scaled;
    }
    testing::expect_close(sums, of_norm, tolerance("batch_norm_sums"), name);
  }
}

// Whichever gradients are made, and in whatever order blocks run.
TEST_P(NormedDepthwise, BitsDoNotFollowTheOrderOfBlocksOrWhatIsMade) {
  for (const auto& [name, shape] : kShapes) {
    const Case c = make(shape, ops::kRelu6);
    std::string bits;
    for (const std::uint64_t seed : {0, 1, 2, 3}) {
      testing::draw_order(seed);
      const Tensor y = output(shape.output()), moments = fp32({2, shape.in_channels});
      const Tensor dnormed = output(shape.input()), sums = fp32({2, shape.in_channels});
      const Tensor dweight = zeros(shape.weight());
      ops::normed_depthwise(ctx, shape, c.norm, c.x, c.weight, y, moments);
      const auto backward = [&](const Tensor& dx, const Tensor& pairs, const Tensor& dw) {
        ops::normed_depthwise_backward(ctx, shape, c.norm, c.dy, c.x, c.weight, dx, pairs, dw);
      };
      if (seed % 2 == 0) {
        backward(dnormed, sums, dweight);
      } else {
        backward(dnormed, sums, Tensor());
        ops::normed_depthwise_backward(ctx, shape, c.norm, c.dy, c.x, Tensor(), Tensor(), Tensor(),
                                       dweight);
      }
      const std::string now = testing::bits_of(y) + testing::bits_of(moments) +
                              testing::bits_of(dnormed) + testing::bits_of(sums) +
                              testing::bits_of(dweight);
      if (!bits.empty()) {
        EXPECT_TRUE(now == bits) << name << ", seed " << seed;
      }
      bits = now;
    }
  }
}

// Through the norm's moments as well: the loss is an inner product with the convolution's result.
TEST_P(NormedDepthwise, GoesOnToTheNormsBackward) {
  const ConvolutionShape shape = depthwise(2, 3, 3, 9, 2);
  const Case c = make(shape, {-0.5f, 1.0f});
  const Values w = testing::values_of(c.norm.weight), b = testing::values_of(c.norm.bias);
  const Values taps = testing::values_of(c.weight);
  const auto loss = [&](const Values& in) {
    const Values m = testing::reference::batch_moments(in, 9);
    const Values normed = testing::reference::batch_norm(in, m, w, b, kEpsilon, {}, c.norm.clamp);
    return testing::inner_product(c.of_y, testing::reference::convolution(shape, normed, taps));
  };
  const Tensor dnormed = output(shape.input()), sums = fp32({2, 9}), dx = output(shape.input());
  ops::normed_depthwise_backward(ctx, shape, c.norm, c.dy, c.x, c.weight, dnormed, sums, Tensor());
  ops::batch_norm_backward(ctx, c.norm, rows_of(dnormed), rows_of(c.x), Tensor(), sums, 18,
                           Tensor(), rows_of(dx));
  testing::expect_close(dx, testing::finite_differences(loss, c.in),
                        2 * tolerance("batch_norm_backward"), "dx");
}

TEST_P(NormedDepthwise, RefusesWhatDoesNotFit) {
  const auto refuses = [](const auto& call) { EXPECT_THROW(call(), InternalError); };
  const Case c = make(depthwise(1, 4, 5, 8, 1), ops::kRelu);
  const Tensor y = output(c.shape.output()), pairs = fp32({2, 8}), dw = zeros(c.shape.weight());
  const auto forward = [&](const ConvolutionShape& shape, const ops::BatchNorm& norm,
                           const Tensor& moments) {
    ops::normed_depthwise(ctx, shape, norm, c.x, c.weight, y, moments);
  };
  const auto backward = [&](const ops::BatchNorm& norm, const Tensor& dx, const Tensor& sums,
                            const Tensor& dweight) {
    ops::normed_depthwise_backward(ctx, c.shape, norm, c.dy, c.x, c.weight, dx, sums, dweight);
  };
  refuses([&] { forward(depthwise(1, 4, 5, 8, 3), c.norm, pairs); });
  refuses([&] { forward({1, 4, 5, 8, 8, 3, 3, 1, 1, 1}, c.norm, pairs); });
  refuses([&] { forward(depthwise(1, 4, 4, 8, 1), c.norm, pairs); });
  refuses([&] { forward(c.shape, c.norm, fp32({2, 7})); });
  ops::BatchNorm narrow = c.norm;
  narrow.weight = fp32({7});
  refuses([&] { forward(c.shape, narrow, pairs); });
  refuses([&] { backward(narrow, y, pairs, dw); });
  refuses([&] { backward({}, y, pairs, dw); });
  refuses([&] { backward(c.norm, y, Tensor(), dw); });
  refuses([&] { backward(c.norm, Tensor(), pairs, dw); });
  refuses([&] { backward(c.norm, Tensor(), Tensor(), Tensor()); });
  refuses([&] { backward(c.norm, y, fp32({2, 7}), dw); });
  refuses([&] { backward(c.norm, y, pairs, fp32({8})); });
  refuses([&] {
    ops::normed_depthwise_backward(ctx, c.shape, c.norm, c.dy, c.x, Tensor(), y, pairs, dw);
  });
  refuses([&] { ops::normed_depthwise(ctx, c.shape, c.norm, c.x, Tensor(), y, pairs); });
}

TRIREME_FOR_EACH_DTYPE(NormedDepthwise);

}  // namespace
}  // namespace trireme
