#include <gtest/gtest.h>

#include "trireme/ops/head_norm.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using ops::HeadNorm;
using testing::Values;

class HeadNorms : public testing::OpsTest {
 protected:
  struct Case {
    ops::AttentionShape shape;
    bool whole;
    float plus;
  };
  // What a rank has that holds all heads.
  HeadNorm norm_of(const Case& c, const Values& query, const Values& key) {
    const std::int64_t size = c.shape.head_size;
    return {.shape = c.shape,
            .whole = c.whole,
            .query_width = c.whole ? c.shape.heads * size : size,
            .key_width = c.whole ? c.shape.kv_heads * size : size,
            .epsilon = 1e-5f,
            .query = {tensor(query, {static_cast<std::int64_t>(query.size())}), c.plus},
            .key = {tensor(key, {static_cast<std::int64_t>(key.size())}), c.plus}};
  }
  Tensor sums_of(const HeadNorm& norm) {
    return testing::make_output(ctx, {norm.rows(), norm.groups()}, DType::kF32);
  }
  static Values plus(Values factor, float more) {
    for (double& value : factor) value += static_cast<double>(more);
    return factor;
  }
  void check(const Case& c);
};

void HeadNorms::check(const Case& c) {
  const ops::AttentionShape& s = c.shape;
  const std::int64_t size = s.head_size, rows = s.batch * s.length;
  const Values x = random(1, rows * s.row(), 2.0), dy = random(2, rows * s.row());
  const Values query = random(3, c.whole ? s.heads * size : size);
  const Values key = random(4, c.whole ? s.kv_heads * size : size);
  const HeadNorm norm = norm_of(c, query, key);
  const Tensor x_t = tensor(x, {rows, s.row()}), dy_t = tensor(dy, {rows, s.row()});
  const Tensor squares = sums_of(norm), dots = sums_of(norm);
  const Tensor y = output(x_t.shape()), dx = output(x_t.shape());
  ops::head_squares(ctx, norm, x_t, squares);
  ops::head_norm(ctx, norm, x_t, squares, y);
  const auto reference = [&](const Values& in, const Values& q, const Values& k) {
    return testing::reference::head_norm(norm, in, plus(q, c.plus), plus(k, c.plus));
  };
  testing::expect_close(y, reference(x, query, key), testing::tolerance("head_norm", dtype()), "y");

  ops::head_norm_dots(ctx, norm, dy_t, x_t, dots);
  ops::head_norm_backward_input(ctx, norm, dy_t, x_t, squares, dots, dx);
  const auto loss = [&](const Values& in, const Values& q, const Values& k) {
    return testing::inner_product(dy, reference(in, q, k));
  };
  const double tolerance = testing::tolerance("head_norm_backward", dtype());
  testing::expect_close(
      dx, testing::finite_differences([&](const Values& v) { return loss(v, query, key); }, x),
      tolerance, "dx");
  const Tensor dquery = testing::make_zeros(ctx, norm.query.weight.shape(), DType::kF32);
  const Tensor dkey = testing::make_zeros(ctx, norm.key.weight.shape(), DType::kF32);
  ops::head_norm_backward_weight(ctx, norm, dy_t, x_t, squares, dquery, dkey);
  const double weights = testing::tolerance("head_norm_weight", dtype());
  testing::expect_close(
      dquery, testing::finite_differences([&](const Values& v) { return loss(x, v, key); }, query),
      weights, "dquery");
  testing::expect_close(
      dkey, testing::finite_differences([&](const Values& v) { return loss(x, query, v); }, key),
      weights, "dkey");
  // It adds, and takes one of the two alone.
  Values twice = testing::values_of(dkey);
  for (double& value : twice) value *= 2.0;
  ops::head_norm_backward_weight(ctx, norm, dy_t, x_t, squares, Tensor(), dkey);
  testing::expect_close(dkey, twice, 1e-6, "added");
  // The gradient may take the place of what it is of.
  ops::head_norm_backward_input(ctx, norm, dy_t, x_t, squares, dots, dy_t);
  EXPECT_EQ(testing::bits_of(dy_t), testing::bits_of(dx));
}

TEST_P(HeadNorms, EachHeadByItself) {
  check({{2, 5, 4, 2, 8}, false, 0.0f});
  check({{2, 3, 3, 1, 5}, false, 1.0f});
}

TEST_P(HeadNorms, AllHeadsTogether) {
  check({{2, 5, 4, 2, 8}, true, 0.0f});
  check({{2, 3, 3, 1, 5}, true, 1.0f});
}

// Two ranks with half of the query heads each, and copies of the only key head, make what one rank
// makes.
TEST_P(HeadNorms, RanksThatShareHeadsMakeTheWhole) {
  const ops::AttentionShape all = {1, 6, 4, 1, 8}, half = {1, 6, 2, 1, 8};
  const std::int64_t size = 8, rows = 6;
  const Values query = random(3, 4 * size), key = random(4, size);
  const HeadNorm whole = norm_of({all, true, 0.0f}, query, key);
  const Values x = random(1, rows * all.row(), 2.0);
  const Tensor squares = sums_of(whole);
  ops::head_squares(ctx, whole, tensor(x, {rows, all.row()}), squares);
  Values sum(static_cast<std::size_t>(2 * rows), 0.0);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    HeadNorm part = norm_of({half, true, 0.0f},
                            Values(query.begin() + rank * 16, query.begin() + rank * 16 + 16), key);
    part.query_width = 4 * size;
    part.key_share = 0.5f;
    Values mine;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto begin = x.begin() + row * all.row();
      mine.insert(mine.end(), begin + rank * 16, begin + rank * 16 + 16);
      mine.insert(mine.end(), begin + 32, begin + 48);
    }
    const Tensor of_part = sums_of(part);
    ops::head_squares(ctx, part, tensor(mine, {rows, half.row()}), of_part);
    const Values values = testing::values_of(of_part);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  testing::expect_close(squares, sum, 1e-6, "squares");
}

TEST_P(HeadNorms, SameBitsAtAnyThreadCount) {
  const Case c = {{2, 90, 4, 2, 16}, true, 0.0f};
  const HeadNorm norm = norm_of(c, random(3, 64), random(4, 32));
  const Tensor x = tensor(random(1, 180 * c.shape.row()), {180, c.shape.row()});
  std::string bits;
  for (const int threads : {1, 2, 3}) {
    ctx.threads = threads;
    const Tensor squares = sums_of(norm), y = output(x.shape());
    const Tensor dquery = testing::make_zeros(ctx, {64}, DType::kF32);
    ops::head_squares(ctx, norm, x, squares);
    ops::head_norm(ctx, norm, x, squares, y);
    ops::head_norm_backward_weight(ctx, norm, x, x, squares, dquery, Tensor());
    const std::string now = testing::bits_of(y) + testing::bits_of(dquery);
    if (!bits.empty()) {
      EXPECT_TRUE(now == bits) << threads;
    }
    bits = now;
  }
}

TEST_P(HeadNorms, RefusesWhatDoesNotFit) {
  const Case c = {{1, 4, 2, 1, 8}, false, 0.0f};
  const HeadNorm norm = norm_of(c, random(3, 8), random(4, 8));
  const Tensor x = output({4, c.shape.row()}), sums = sums_of(norm);
  EXPECT_THROW(ops::head_squares(ctx, norm, x.rows(0, 2), sums), InternalError);
  EXPECT_THROW(ops::head_squares(ctx, norm, x, sums.rows(0, 2)), InternalError);
  EXPECT_THROW(ops::head_norm(ctx, norm_of(c, random(3, 16), random(4, 8)), x, sums, x),
               InternalError);
}

TRIREME_FOR_EACH_DTYPE(HeadNorms);

}  // namespace
}  // namespace trireme
