#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/ops/pooling.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using ops::PoolingShape;
using testing::Values;

class Pooling : public testing::OpsTest {
 protected:
  // Overlapping windows with padding, windows side by side, and the whole picture.
  const PoolingShape kShapes[4] = {{2, 7, 6, 19, 3, 3, 2, 1},
                                   {2, 6, 4, 8, 2, 2, 2, 0},
                                   {1, 5, 7, 3, 2, 3, 1, 1},
                                   PoolingShape::global(3, 4, 5, 33)};
  static std::int64_t in(const PoolingShape& s) { return s.input().elements(); }
  static std::int64_t out(const PoolingShape& s) { return s.output().elements(); }
  double tolerance() const { return testing::tolerance("pooling", dtype()); }
  static double mean(const Values& seen) {
    double sum = 0.0;
    for (const double value : seen) sum += std::isnan(value) ? 0.0 : value;
    return sum / static_cast<double>(seen.size());
  }
};

TEST_P(Pooling, TakesTheLargest) {
  for (const PoolingShape& shape : kShapes) {
    const Values x = random(1, in(shape)), dy = random(2, out(shape));
    const Tensor y = output(shape.output()), dx = output(shape.input());
    const Tensor which = ctx.allocate(shape.output(), DType::kI32);
    ops::max_pooling(ctx, shape, tensor(x, shape.input()), y, which);
    Values largest(dy.size());
    // Ties are broken as max_pooling breaks them, so the loss is found without differences.
    std::vector<std::int32_t> taps(dy.size());
    testing::reference::for_windows(shape, x, [&](std::size_t i, const Values& seen) {
      largest[i] = -std::numeric_limits<double>::infinity();
      for (std::size_t tap = 0; tap < seen.size(); ++tap) {
        if (!(seen[tap] > largest[i])) continue;
        largest[i] = seen[tap];
        taps[i] = static_cast<std::int32_t>(tap);
      }
    });
    testing::expect_close(y, largest, 0.0, "y");
    std::vector<std::int32_t> got(taps.size());
    testing::download(which, got.data());
    EXPECT_EQ(got, taps);
    ops::max_pooling_backward(ctx, shape, tensor(dy, shape.output()), which, dx);
    const auto loss = [&](const Values& v) {
      double sum = 0.0;
      testing::reference::for_windows(shape, v, [&](std::size_t i, const Values& seen) {
        sum += dy[i] * seen[static_cast<std::size_t>(taps[i])];
      });
      return sum;
    };
    testing::expect_close(dx, testing::finite_differences(loss, x), tolerance(), "dx");
  }
}

TEST_P(Pooling, TakesTheFirstOfSeveralAndKeepsNotANumber) {
  const PoolingShape shape{1, 2, 2, 3, 2, 2, 1, 0};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double low = -std::numeric_limits<double>::infinity();
  // Pixels of channels: equal ones, a NaN in the middle, minus infinity.
  const Values x = {1, 5, low, 2, nan, low, 2, 9, low, 0, nan, low};
  const Tensor y = output(shape.output());
  const Tensor which = ctx.allocate(shape.output(), DType::kI32);
  ops::max_pooling(ctx, shape, tensor(x, shape.input()), y, which);
  const Values got = testing::values_of(y);
  EXPECT_EQ(got[0], 2.0);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2], low);
  std::vector<std::int32_t> taps(3);
  testing::download(which, taps.data());
  EXPECT_EQ(taps, (std::vector<std::int32_t>{1, 1, 0}));
}

TEST_P(Pooling, TakesTheMean) {
  for (const PoolingShape& shape : kShapes) {
    const Values x = random(1, in(shape)), dy = random(2, out(shape));
    const Tensor y = output(shape.output()), dx = output(shape.input());
    ops::average_pooling(ctx, shape, tensor(x, shape.input()), y);
    Values means(dy.size());
    testing::reference::for_windows(
        shape, x, [&](std::size_t i, const Values& seen) { means[i] = mean(seen); });
    testing::expect_close(y, means, tolerance(), "y");
    ops::average_pooling_backward(ctx, shape, tensor(dy, shape.output()), dx);
    const auto loss = [&](const Values& v) {
      double sum = 0.0;
      testing::reference::for_windows(
          shape, v, [&](std::size_t i, const Values& seen) { sum += dy[i] * mean(seen); });
      return sum;
    };
    testing::expect_close(dx, testing::finite_differences(loss, x), tolerance(), "dx");
  }
}

TEST_P(Pooling, RefusesWhatDoesNotFit) {
  const PoolingShape& shape = kShapes[0];
  const Tensor x = output(shape.input()), y = output(shape.output());
  const Tensor which = ctx.allocate(shape.output(), DType::kI32);
  const auto refuses = [&](const auto& call) { EXPECT_THROW(call(), InternalError); };
  refuses([&] { ops::max_pooling(ctx, shape, y, y, which); });
  refuses([&] { ops::max_pooling(ctx, shape, x, x, which); });
  refuses([&] { ops::max_pooling(ctx, shape, x, y, y); });
  refuses([&] { ops::max_pooling_backward(ctx, shape, x, which, x); });
  refuses([&] { ops::average_pooling(ctx, shape, y, y); });
  refuses([&] { ops::average_pooling_backward(ctx, shape, y, y); });
  PoolingShape wide = shape;
  wide.padding = 2;
  refuses([&] { ops::average_pooling(ctx, wide, x, y); });
}

TRIREME_FOR_EACH_DTYPE(Pooling);

}  // namespace
}  // namespace trireme
