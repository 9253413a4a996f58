#include <string>

#include "trireme/ops/convolution.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using ops::ConvolutionShape;
using testing::Values;

struct Named {
  const char* name;
  ConvolutionShape shape;
};

// {batch, height, width, in, out, kernel height, kernel width, stride, padding, groups}
const Named kShapes[] = {
    {"pointwise", {2, 5, 4, 24, 10, 1, 1, 1, 0, 1}},
    {"pointwise with a stride", {2, 5, 4, 8, 5, 1, 1, 2, 0, 1}},
    {"3 x 3", {2, 6, 5, 3, 16, 3, 3, 1, 1, 1}},
    {"3 x 3 with a stride", {3, 7, 8, 16, 5, 3, 3, 2, 1, 1}},
    {"patches", {2, 8, 8, 3, 12, 4, 4, 4, 0, 1}},
    {"not square", {1, 4, 9, 5, 7, 3, 2, 1, 0, 1}},
    {"wide padding", {1, 3, 3, 2, 3, 5, 5, 1, 4, 1}},
    {"groups", {2, 5, 6, 12, 8, 3, 3, 1, 1, 4}},
    {"groups of whole vectors", {1, 4, 4, 32, 32, 3, 3, 2, 1, 2}},
    {"depthwise", {2, 6, 5, 83, 83, 3, 3, 1, 1, 83}},
    {"depthwise with a stride", {2, 7, 8, 32, 32, 3, 3, 2, 1, 32}},
    {"depthwise of 5 x 5", {1, 5, 5, 16, 16, 5, 5, 1, 2, 16}},
    {"depthwise without padding", {1, 5, 4, 9, 9, 2, 3, 2, 0, 9}},
    {"depthwise of several tiles", {2, 19, 31, 70, 70, 3, 3, 1, 1, 70}},
    {"depthwise of several tiles with a stride", {2, 33, 31, 136, 136, 3, 3, 2, 1, 136}},
    {"depthwise of even extents with a stride", {1, 18, 16, 24, 24, 3, 3, 2, 1, 24}},
    {"depthwise of one pixel", {3, 1, 1, 8, 8, 3, 3, 1, 1, 8}},
    {"depthwise of one pixel with a stride", {1, 1, 1, 3, 3, 3, 3, 2, 1, 3}},
    {"depthwise of one line", {1, 1, 40, 16, 16, 3, 3, 1, 1, 16}},
    {"depthwise of inner pixels", {2, 9, 17, 16, 16, 3, 3, 1, 0, 16}},
    {"depthwise of inner pixels with a stride", {1, 10, 9, 16, 16, 3, 3, 2, 0, 16}},
    {"depthwise beyond the edges", {1, 5, 6, 16, 16, 3, 3, 1, 3, 16}},
    {"depthwise beyond the edges with a stride", {1, 5, 6, 16, 16, 3, 3, 2, 2, 16}},
    {"depthwise of three pixels beyond with a stride", {1, 4, 5, 16, 16, 3, 3, 2, 3, 16}},
    {"depthwise with a stride of 3", {1, 8, 8, 16, 16, 3, 3, 3, 1, 16}},
};

class Convolution : public testing::OpsTest {
 protected:
  static std::int64_t in(const ConvolutionShape& s) { return s.input().elements(); }
  static std::int64_t out(const ConvolutionShape& s) { return s.output().elements(); }
  double tolerance(const std::string& op) const { return testing::tolerance(op, dtype()); }
  // Whether this device can compute it: an emulated GPU has no products in a build without CUDA.
  bool has(const ConvolutionShape& shape) const { return ctx.matmul || shape.depthwise(); }
};

TEST_P(Convolution, IsASumOverTheWindow) {
  for (const auto& [name, shape] : kShapes) {
    if (!has(shape)) continue;
    const Values x = random(1, in(shape)), weight = random(2, shape.weight().elements(), 0.3);
    const Values bias = random(3, shape.out_channels);
    const Tensor y = output(shape.output());
    const Tensor x_t = tensor(x, shape.input()), weight_t = tensor(weight, shape.weight());
    ops::convolution(ctx, shape, x_t, weight_t, Tensor(), y);
    Values expected = testing::reference::convolution(shape, x, weight);
    testing::expect_close(y, expected, tolerance("convolution"), name);
    ops::convolution(ctx, shape, x_t, weight_t, tensor(bias, {shape.out_channels}), y);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % bias.size()];
    testing::expect_close(y, expected, 2 * tolerance("convolution"), std::string(name) + ", bias");
  }
}

// The reference's gradients are those of the reference.
TEST(ConvolutionReference, HasTheGradientsOfItsDifferences) {
  const ConvolutionShape shape{2, 4, 5, 4, 6, 3, 2, 2, 1, 2};
  const Values x = testing::random_values(1, shape.input().elements());
  const Values weight = testing::random_values(2, shape.weight().elements());
  const Values dy = testing::random_values(3, shape.output().elements());
  const auto loss = [&](const Values& v, const Values& w) {
    return testing::inner_product(dy, testing::reference::convolution(shape, v, w));
  };
  const auto gradients = testing::reference::convolution_backward(shape, x, weight, dy);
  const Values of_x =
      testing::finite_differences([&](const Values& v) { return loss(v, weight); }, x);
  const Values of_weight =
      testing::finite_differences([&](const Values& w) { return loss(x, w); }, weight);
  EXPECT_LT(testing::relative_error(gradients.x, of_x), 1e-8);
  EXPECT_LT(testing::relative_error(gradients.weight, of_weight), 1e-8);
}

TEST_P(Convolution, Gradients) {
  for (const auto& [name, shape] : kShapes) {
    if (!has(shape)) continue;
    const Values x = random(1, in(shape)), weight = random(2, shape.weight().elements(), 0.3);
    const Values dy = random(4, out(shape));
    auto expected = testing::reference::convolution_backward(shape, x, weight, dy);
    const Tensor x_t = tensor(x, shape.input()), dy_t = tensor(dy, shape.output());
    const Tensor dx = output(shape.input());
    ops::convolution_backward_input(ctx, shape, dy_t, tensor(weight, shape.weight()), dx);
    testing::expect_close(dx, expected.x, tolerance("convolution"), name);
    const Tensor dweight = testing::make_zeros(ctx, shape.weight(), DType::kF32);
    const Tensor dbias = testing::make_zeros(ctx, {shape.out_channels}, DType::kF32);
    ops::convolution_backward_weight(ctx, shape, dy_t, x_t, dweight, dbias);
    testing::expect_close(dweight, expected.weight, tolerance("convolution_backward_weight"), name);
    Values sums(static_cast<std::size_t>(shape.out_channels), 0.0);
    for (std::size_t i = 0; i < dy.size(); ++i) sums[i % sums.size()] += dy[i];
    testing::expect_close(dbias, sums, tolerance("column_sums"), name);
    ops::convolution_backward_weight(ctx, shape, dy_t, x_t, dweight, Tensor());
    for (double& value : expected.weight) value *= 2.0;
    testing::expect_close(dweight, expected.weight, tolerance("convolution_backward_weight"),
                          std::string(name) + ", added to");
    const Tensor alone = testing::make_zeros(ctx, {shape.out_channels}, DType::kF32);
    ops::convolution_backward_weight(ctx, shape, dy_t, x_t, Tensor(), alone);
    testing::expect_close(alone, sums, tolerance("column_sums"), std::string(name) + ", alone");
  }
}

// More patches than are made at a time, and more rows than make one part of a sum.
TEST_P(Convolution, InParts) {
  const ConvolutionShape dense{40, 12, 12, 24, 8, 3, 3, 1, 1, 1};
  const ConvolutionShape each{40, 12, 12, 24, 24, 3, 3, 1, 1, 24};
  const ConvolutionShape many{70, 3, 3, 520, 520, 3, 3, 2, 1, 520};
  for (const ConvolutionShape& shape : {dense, each, many}) {
    if (!has(shape)) continue;
    const Values x = random(1, in(shape)), weight = random(2, shape.weight().elements(), 0.3);
    const Values dy = random(4, out(shape));
    const Tensor y = output(shape.output()), dx = output(shape.input());
    const Tensor x_t = tensor(x, shape.input()), weight_t = tensor(weight, shape.weight());
    const Tensor dy_t = tensor(dy, shape.output());
    const auto expected = testing::reference::convolution_backward(shape, x, weight, dy);
    ops::convolution(ctx, shape, x_t, weight_t, Tensor(), y);
    testing::expect_close(y, testing::reference::convolution(shape, x, weight),
                          tolerance("convolution"), "y");
    ops::convolution_backward_input(ctx, shape, dy_t, weight_t, dx);
    testing::expect_close(dx, expected.x, tolerance("convolution"), "dx");
    const Tensor dweight = testing::make_zeros(ctx, shape.weight(), DType::kF32);
    ops::convolution_backward_weight(ctx, shape, dy_t, x_t, dweight, Tensor());
    testing::expect_close(dweight, expected.weight, tolerance("convolution_backward_weight"),
                          "dweight");
  }
}

TEST_P(Convolution, OwnKernelsDoNotFollowTheThreads) {
  const ConvolutionShape shape{8, 12, 12, 24, 24, 3, 3, 1, 1, 24};
  const Tensor x = tensor(random(1, in(shape)), shape.input());
  const Tensor dy = tensor(random(4, out(shape)), shape.output());
  const Tensor weight = tensor(random(2, shape.weight().elements()), shape.weight());
  std::string bits;
  for (const int threads : {1, 2, 7}) {
    ctx.threads = threads;
    const Tensor y = output(shape.output()), dx = output(shape.input());
    const Tensor dweight = testing::make_zeros(ctx, shape.weight(), DType::kF32);
    ops::convolution(ctx, shape, x, weight, Tensor(), y);
    ops::convolution_backward_input(ctx, shape, dy, weight, dx);
    ops::convolution_backward_weight(ctx, shape, dy, x, dweight, Tensor());
    const std::string now = testing::bits_of(y) + testing::bits_of(dx) + testing::bits_of(dweight);
    if (!bits.empty()) {
      EXPECT_EQ(now, bits) << threads;
    }
    bits = now;
  }
}

// In whatever order blocks run.
TEST_P(Convolution, BothGradientsAtOnceHaveTheSameBits) {
  for (const auto& [name, shape] : kShapes) {
    if (!has(shape)) continue;
    const Tensor x = tensor(random(1, in(shape)), shape.input());
    const Tensor dy = tensor(random(4, out(shape)), shape.output());
    const Tensor weight = tensor(random(2, shape.weight().elements()), shape.weight());
    const Tensor dx = output(shape.input()), both = output(shape.input());
    const Tensor dweight = testing::make_zeros(ctx, shape.weight(), DType::kF32);
    const Tensor same = testing::make_zeros(ctx, shape.weight(), DType::kF32);
    testing::draw_order(7);
    ops::convolution_backward_input(ctx, shape, dy, weight, dx);
    ops::convolution_backward_weight(ctx, shape, dy, x, dweight, Tensor());
    testing::draw_order(8);
    ops::convolution_backward(ctx, shape, dy, x, weight, both, same);
    EXPECT_EQ(testing::bits_of(both), testing::bits_of(dx)) << name;
    EXPECT_EQ(testing::bits_of(same), testing::bits_of(dweight)) << name;
  }
}

TEST_P(Convolution, RefusesWhatDoesNotFit) {
  const ConvolutionShape shape{2, 6, 5, 4, 8, 3, 3, 1, 1, 1};
  const Tensor x = output(shape.input()), weight = output(shape.weight());
  const Tensor y = output(shape.output());
  const Tensor dweight = testing::make_zeros(ctx, shape.weight(), DType::kF32);
  const auto refuses = [&](const auto& call) { EXPECT_THROW(call(), InternalError); };
  refuses([&] { ops::convolution(ctx, shape, x, x, {}, y); });
  refuses([&] { ops::convolution(ctx, shape, x, weight, x, y); });
  refuses([&] { ops::convolution(ctx, shape, x, weight, {}, x); });
  refuses([&] { ops::convolution_backward_input(ctx, shape, x, weight, x); });
  refuses([&] { ops::convolution_backward_weight(ctx, shape, y, y, dweight, {}); });
  refuses([&] { ops::convolution_backward_weight(ctx, shape, y, x, x, {}); });
  refuses([&] { ops::convolution_backward_weight(ctx, shape, y, x, dweight, x); });
  const ConvolutionShape each{2, 6, 5, 4, 4, 3, 3, 1, 1, 4};
  const Tensor w = output(each.weight()), dw = testing::make_zeros(ctx, w.shape(), DType::kF32);
  refuses([&] { ops::convolution_backward(ctx, each, y, x, w, x, dw); });
  refuses([&] { ops::convolution_backward(ctx, each, x, y, w, x, dw); });
  refuses([&] { ops::convolution_backward(ctx, each, x, x, x, x, dw); });
  refuses([&] { ops::convolution_backward(ctx, each, x, x, w, y, dw); });
  refuses([&] { ops::convolution_backward(ctx, each, x, x, w, x, x); });
  const DType other = dtype() == DType::kBF16 ? DType::kF16 : DType::kBF16;
  const Tensor mixed = testing::make_zeros(ctx, shape.weight(), other);
  refuses([&] { ops::convolution(ctx, shape, x, mixed, {}, y); });
  std::string message;
  try {
    ConvolutionShape odd = shape;
    odd.groups = 3;
    ops::convolution(ctx, odd, x, weight, {}, y);
  } catch (const InternalError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("convolution: input (2, 6, 5, 4), output channels 8, kernel 3 x 3, stride "
                         "1, padding 1, groups 3"),
            std::string::npos)
      << message;
  ConvolutionShape large = shape;
  large.kernel_width = 8;
  refuses([&] { ops::convolution(ctx, large, x, weight, {}, y); });
}

TRIREME_FOR_EACH_DTYPE(Convolution);

}  // namespace
}  // namespace trireme
