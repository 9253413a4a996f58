#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/ops/attention.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using ops::AttentionShape;
using testing::Values;

using Rows = std::vector<std::int32_t>;  // a number for each position of each sample

class Attention : public testing::OpsTest {
 protected:
  struct Result {
    Tensor out, log_sum;
  };
  Result forward(const AttentionShape& s, const Tensor& qkv, const ops::KeyRanges& keys) {
    Result r = {output({s.batch * s.length, s.heads * s.head_size}),
                testing::make_output(ctx, {s.batch * s.heads * s.length}, DType::kF32)};
    ops::attention(ctx, s, qkv, keys, r.out, r.log_sum);
    return r;
  }
  Tensor qkv_tensor(const AttentionShape& s, const Values& values) {
    return tensor(values, {s.batch * s.length, s.row()});
  }
  Values random_qkv(const AttentionShape& s, std::uint64_t seed = 1) {
    return random(seed, s.batch * s.length * s.row());
  }
  Tensor rows_tensor(const Rows& rows) {
    return rows.empty() ? Tensor() : testing::make_tensor(ctx, rows);
  }
  void check_forward(const AttentionShape& s, const Rows& first_key, const Rows& key_end = {}) {
    const Values qkv = random_qkv(s);
    const Result r = forward(s, qkv_tensor(s, qkv), {rows_tensor(first_key), rows_tensor(key_end)});
    testing::expect_close(r.out, testing::reference::attention(s, qkv, first_key, key_end),
                          testing::tolerance("attention", dtype()),
                          "length " + std::to_string(s.length));
  }
  // A cache gets the sequences in pieces, with key and value heads half as many as queries.
  void expect_cached_follows(const AttentionShape& whole,
                             const std::vector<std::int32_t>& first_key) {
    const Values qkv = random_qkv(whole);
    const Values expected = testing::reference::attention(whole, qkv, first_key);
    const std::int64_t width = whole.heads * whole.head_size;
    const Tensor keys = output({whole.batch, 80, width / 2}), values = output(keys.shape());
    std::int64_t past = 0;
    for (const std::int64_t count : {66, 1, 3, 1, 4}) {
      AttentionShape part = whole;
      part.length = count;
      Values rows, wanted;
      std::vector<std::int32_t> first;
      for (std::int64_t b = 0; b < whole.batch; ++b) {
        const std::int64_t row = b * whole.length + past;
        const auto add = [&](const auto& from, std::int64_t size, auto& to) {
          if (from.empty()) return;
          to.insert(to.end(), from.begin() + row * size, from.begin() + (row + count) * size);
        };
        add(qkv, whole.row(), rows);
        add(expected, width, wanted);
        add(first_key, 1, first);
      }
      const Tensor out = output({whole.batch * count, width});
      ops::attention_cached(ctx, part, qkv_tensor(part, rows), past, rows_tensor(first), keys,
                            values, out);
      testing::expect_close(out, wanted, testing::tolerance("attention", dtype()),
                            "past " + std::to_string(past));
      past += count;
    }
  }
  void check_threads(const AttentionShape& s);
  // The gradient by every element of qkv (or by every `stride`th), by finite differences.
  void check_backward(const AttentionShape& s, const Rows& first_key, std::size_t stride = 1,
                      const Rows& key_end = {}) {
    const Values qkv = random_qkv(s);
    const Values dout = random(2, s.batch * s.length * s.heads * s.head_size);
    const Tensor qkv_t = qkv_tensor(s, qkv);
    const ops::KeyRanges keys = {rows_tensor(first_key), rows_tensor(key_end)};
    const Result r = forward(s, qkv_t, keys);
    const Tensor dqkv = output(qkv_t.shape());
    ops::attention_backward(ctx, s, qkv_t, keys, r.out, r.log_sum, tensor(dout, r.out.shape()),
                            dqkv);
    const Values actual = testing::values_of(dqkv);
    Values some, expected;
    for (std::size_t i = 0; i < qkv.size(); i += stride) {
      some.push_back(actual[i]);
      Values x = qkv;
      const auto loss = [&](double value) {
        x[i] = value;
        return testing::inner_product(dout,
                                      testing::reference::attention(s, x, first_key, key_end));
      };
      expected.push_back((loss(qkv[i] + 1e-5) - loss(qkv[i] - 1e-5)) / 2e-5);
    }
    EXPECT_LE(testing::relative_error(some, expected),
              testing::tolerance("attention_backward", dtype()));
  }
  // Documents that start at the given positions of each sample.
  static Rows documents(const AttentionShape& s, const Rows& starts) {
    Rows first;
    for (std::int64_t row = 0; row < s.batch * s.length; ++row) {
      std::int32_t start = 0;
      for (const std::int32_t at : starts) start = at <= row % s.length ? at : start;
      first.push_back(start);
    }
    return first;
  }
  // Where these documents end.
  static Rows ends(const AttentionShape& s, Rows starts) {
    Rows end;
    starts.push_back(static_cast<std::int32_t>(s.length));
    for (std::int64_t row = 0; row < s.batch * s.length; ++row) {
      end.push_back(*std::ranges::upper_bound(starts, static_cast<std::int32_t>(row % s.length)));
    }
    return end;
  }
  // Samples of these lengths, padded to the longest.
  static Rows padding(const AttentionShape& s, const Rows& lengths) {
    Rows end;
    for (const std::int32_t length : lengths) {
      end.insert(end.end(), static_cast<std::size_t>(s.length), length);
    }
    return end;
  }
};

TEST_P(Attention, OneTileAndSeveral) {
  check_forward({2, 1, 1, 1, 3}, {});
  check_forward({2, 7, 3, 3, 5}, {});
  check_forward({1, 64, 2, 2, 16}, {});
  check_forward({2, 67, 2, 2, 24}, {});
  check_forward({1, 200, 1, 1, 64}, {});
}

TEST_P(Attention, LargeHeads) {
  check_forward({1, 40, 1, 1, 128}, {});
  check_forward({1, 37, 2, 1, 200}, {});
  check_forward({1, 18, 1, 1, 256}, {});
  check_backward({1, 35, 2, 1, 80}, {}, 211);
  check_backward({1, 18, 2, 1, 256}, {}, 211);
}

// The sizes for which a GPU has kernels of their own, and what is between them; with all that hides
// keys, across tiles of queries and of keys.
TEST_P(Attention, HeadsOfEverySize) {
  for (const std::int64_t size : {8, 40, 64, 128}) {
    AttentionShape s = {
        .batch = 2, .length = 131, .heads = 2, .kv_heads = 1, .head_size = size, .window = 90};
    check_forward(s, documents(s, {0, 30, 64, 129}));
    s.batch = 1;
    check_backward(s, documents(s, {0, 30, 64, 129}), 9973);
    s.window = 0;
    s.causal = false;
    const Rows starts = {0, 33, 70};
    check_forward(s, documents(s, starts), ends(s, starts));
    check_backward(s, documents(s, starts), 9973, ends(s, starts));
    s.cap = 2.0f;
    check_backward(s, {}, 9973, padding(s, {97}));
  }
}

// Rows of whole tiles that nobody reads have no gradient of keys and values.
TEST_P(Attention, PaddingHasNoGradient) {
  const AttentionShape s = {1, 200, 2, 1, 16, false};
  const Tensor qkv = qkv_tensor(s, random_qkv(s));
  const ops::KeyRanges keys = {{}, rows_tensor(padding(s, {40}))};
  const Result r = forward(s, qkv, keys);
  const Tensor dqkv = output(qkv.shape());
  ops::attention_backward(ctx, s, qkv, keys, r.out, r.log_sum,
                          tensor(random(2, 200 * 32), r.out.shape()), dqkv);
  const Values gradient = testing::values_of(dqkv);
  for (std::int64_t row = 0; row < 200; ++row) {
    for (std::int64_t i = 0; i < s.row(); ++i) {
      const double value = gradient[static_cast<std::size_t>(row * s.row() + i)];
      EXPECT_EQ(value == 0.0, row >= 40 && i >= 32) << row << ", " << i;
    }
  }
}

TEST_P(Attention, GroupedHeads) {
  check_forward({2, 19, 6, 2, 8}, {});
  check_forward({1, 70, 4, 1, 16}, {});
}

TEST_P(Attention, DocumentsDoNotSeeEachOther) {
  const AttentionShape s = {2, 150, 2, 1, 16};
  check_forward(s, documents(s, {0, 3, 64, 100, 149}));
  check_forward(s, documents(s, {130}));
}

TEST_P(Attention, Gradient) {
  check_backward({1, 5, 2, 2, 3}, {});
  check_backward({1, 9, 4, 2, 4}, {});
  const AttentionShape s = {2, 11, 2, 1, 5};
  check_backward(s, documents(s, {4, 9}));
}

TEST_P(Attention, GradientOverSeveralTiles) {
  const AttentionShape s = {1, 131, 2, 1, 16};
  check_backward(s, {}, 397);
  check_backward(s, documents(s, {70, 129}), 397);
}

TEST_P(Attention, BidirectionalSeesTheWholeSample) {
  check_forward({2, 1, 1, 1, 3, false}, {});
  check_forward({2, 7, 3, 3, 5, false}, {});
  check_forward({1, 64, 2, 2, 16, false}, {});
  check_forward({2, 131, 4, 2, 24, false}, {});
  check_forward({1, 40, 1, 1, 128, false}, {});
  check_forward({1, 37, 2, 1, 200, false}, {});
}

TEST_P(Attention, PaddingIsSeenByNobody) {
  const AttentionShape s = {3, 150, 2, 1, 16, false};
  check_forward(s, {}, padding(s, {150, 70, 1}));
  const AttentionShape causal = {3, 150, 2, 1, 16};
  check_forward(causal, {}, padding(causal, {150, 70, 1}));
  // What is there makes no difference to the rest.
  const Tensor end = rows_tensor(padding(s, {150, 70, 1}));
  Values qkv = random_qkv(s);
  const Values before = testing::values_of(forward(s, qkv_tensor(s, qkv), {{}, end}).out);
  for (std::int64_t row = 150 + 70; row < 300; ++row) {
    for (std::int64_t i = 2 * 16; i < s.row(); ++i) {
      qkv[static_cast<std::size_t>(row * s.row() + i)] = 1e3;
    }
  }
  EXPECT_EQ(testing::values_of(forward(s, qkv_tensor(s, qkv), {{}, end}).out), before);
}

TEST_P(Attention, BidirectionalDocumentsDoNotSeeEachOther) {
  const AttentionShape s = {2, 150, 2, 1, 16, false};
  const Rows starts = {0, 3, 64, 100, 149};
  check_forward(s, documents(s, starts), ends(s, starts));
  check_forward(s, documents(s, {0, 130}), ends(s, {0, 130}));
}

TEST_P(Attention, BidirectionalGradient) {
  check_backward({1, 5, 2, 2, 3, false}, {});
  check_backward({1, 9, 4, 2, 4, false}, {});
  const AttentionShape padded = {2, 11, 2, 1, 5, false};
  check_backward(padded, {}, 1, padding(padded, {11, 4}));
  check_backward(padded, documents(padded, {0, 4, 9}), 1, ends(padded, {0, 4, 9}));
  const AttentionShape tiles = {1, 131, 2, 1, 16, false};
  check_backward(tiles, {}, 397);
  check_backward(tiles, {}, 397, padding(tiles, {67}));
  check_backward(tiles, documents(tiles, {0, 70, 129}), 397, ends(tiles, {0, 70, 129}));
  check_backward({1, 35, 2, 1, 80, false}, {}, 211);
}

TEST_P(Attention, SameBitsAtAnyThreadCount) {
  for (const bool causal : {true, false}) check_threads({2, 90, 4, 2, 16, causal});
}

void Attention::check_threads(const AttentionShape& s) {
  const Tensor qkv = qkv_tensor(s, random_qkv(s));
  const Tensor dout = tensor(random(2, 2 * 90 * 4 * 16), {2 * 90, 4 * 16});
  std::string bits;
  for (const int threads : {1, 2, 3}) {
    ctx.threads = threads;
    const Result r = forward(s, qkv, Tensor());
    const Tensor dqkv = output(qkv.shape());
    ops::attention_backward(ctx, s, qkv, Tensor(), r.out, r.log_sum, dout, dqkv);
    const std::string now =
        testing::bits_of(r.out) + testing::bits_of(r.log_sum) + testing::bits_of(dqkv);
    if (!bits.empty()) {
      EXPECT_TRUE(now == bits) << threads;
    }
    bits = now;
  }
}

// Prefill of a prompt, then position by position, gives what the whole sequence gives at once: with
// and without documents, which begin at other places in each sample.
TEST_P(Attention, CachedFollowsTheWhole) {
  const AttentionShape whole = {2, 75, 4, 2, 8};
  std::vector<std::int32_t> documents;
  for (const std::vector<std::int32_t>& starts : {std::vector{0, 20, 68, 71}, {0, 66, 67}}) {
    for (int t = 0; t < 75; ++t) {
      documents.push_back(*std::prev(std::upper_bound(starts.begin(), starts.end(), t)));
    }
  }
  expect_cached_follows(whole, {});
  expect_cached_follows(whole, documents);
  AttentionShape more = whole;
  more.length = 6;
  const Tensor cache = output({2, 80, 16});
  const Tensor rows = output({12, more.row()}), out = output({12, 32});
  EXPECT_THROW(ops::attention_cached(ctx, more, rows, 75, Tensor(), cache, cache, out),
               InternalError);
  AttentionShape both_ways = more;
  both_ways.causal = false;
  EXPECT_THROW(ops::attention_cached(ctx, both_ways, rows, 0, Tensor(), cache, cache, out),
               InternalError);
  EXPECT_THROW(ops::attention_cached(ctx, more, rows, 0, rows_tensor({0, 0, 0}), cache, cache, out),
               InternalError);
}

TEST_P(Attention, NotANumberReachesOnlyLaterPositions) {
  const AttentionShape s = {1, 70, 1, 1, 16};
  Values qkv = random_qkv(s);
  qkv[static_cast<std::size_t>(40 * s.row() + 16)] =
      std::numeric_limits<double>::quiet_NaN();  // a key
  const Values out = testing::values_of(forward(s, qkv_tensor(s, qkv), Tensor()).out);
  for (std::size_t t = 0; t < 70; ++t) EXPECT_EQ(std::isnan(out[t * 16]), t >= 40) << t;
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  const AttentionShape s = {1, 70, 1, 1, 16};
  const Values qkv = random(1, 70 * s.row(), 300.0);
  const Values out = testing::values_of(forward(s, qkv_tensor(s, qkv), Tensor()).out);
  for (const double value : out) EXPECT_TRUE(std::isfinite(value));
}

// Windows of less than a tile, of a tile and of more; one as long as the sample hides nothing.
TEST_P(Attention, AWindowHidesWhatIsBeforeIt) {
  for (const std::int64_t window : {1, 5, 64, 100, 150, 1000}) {
    const AttentionShape s = {
        .batch = 2, .length = 150, .heads = 2, .kv_heads = 1, .head_size = 16, .window = window};
    check_forward(s, {});
    check_forward(s, documents(s, {0, 3, 64, 100, 149}));
    AttentionShape all = s;
    all.window = 0;
    const Tensor qkv = qkv_tensor(s, random_qkv(s));
    const bool same = testing::bits_of(forward(s, qkv, Tensor()).out) ==
                      testing::bits_of(forward(all, qkv, Tensor()).out);
    EXPECT_EQ(same, window >= 150) << window;
    EXPECT_EQ(s.reads_windows(), window < 150) << window;
  }
  const AttentionShape few = {
      .batch = 2, .length = 11, .heads = 2, .kv_heads = 1, .head_size = 5, .window = 3};
  check_backward(few, {});
  check_backward(few, documents(few, {4, 9}));
  const AttentionShape tiles = {
      .batch = 1, .length = 200, .heads = 2, .kv_heads = 1, .head_size = 16, .window = 70};
  check_backward(tiles, {}, 397);
  check_backward(tiles, documents(tiles, {70, 129}), 397);
}

TEST_P(Attention, ScoresAreScaledAndCapped) {
  AttentionShape s = {
      .batch = 2, .length = 70, .heads = 4, .kv_heads = 2, .head_size = 8, .scale = 0.9f};
  check_forward(s, {});
  for (const float cap : {0.7f, 30.0f}) {
    s.cap = cap;
    check_forward(s, {});
    check_forward(s, documents(s, {0, 3, 64}));
    AttentionShape few = {.batch = 2,
                          .length = 9,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_size = 4,
                          .scale = 0.9f,
                          .cap = cap};
    check_backward(few, {});
    few.window = 3;
    check_backward(few, documents(few, {0, 5}));
    check_backward({.batch = 1,
                    .length = 131,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_size = 16,
                    .causal = false,
                    .cap = cap},
                   {}, 397);
  }
  s.causal = false;
  check_forward(s, {}, padding(s, {70, 30}));
}

TEST_P(Attention, CachedWindowsFollowTheWhole) {
  for (const std::int64_t window : {3, 40}) {
    expect_cached_follows({.batch = 2,
                           .length = 75,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_size = 8,
                           .window = window,
                           .scale = 0.5f,
                           .cap = 2.0f},
                          {});
  }
}

TEST(AttentionShape, CountsThePairsThatItReads) {
  for (const std::int64_t length : {1, 7, 64}) {
    for (const std::int64_t window : {0, 1, 5, 64, 100}) {
      double pairs = 0.0;
      for (std::int64_t t = 0; t < length; ++t) {
        pairs += static_cast<double>(window == 0 ? t + 1 : std::min(t + 1, window));
      }
      const AttentionShape s = {.batch = 1,
                                .length = length,
                                .heads = 1,
                                .kv_heads = 1,
                                .head_size = 1,
                                .window = window};
      EXPECT_EQ(s.pairs(), pairs) << length << ", " << window;
    }
  }
}

TEST_P(Attention, Rotary) {
  using ops::Rotation;
  const Rotation plain = ops::plain_rotation(10000.0, 6), wide = ops::plain_rotation(500.0, 32);
  Rotation partial = ops::plain_rotation(10000.0, 16);  // half of the channels
  Rotation adjacent = wide, grown = wide, part_adjacent = ops::plain_rotation(100.0, 6);
  adjacent.adjacent = part_adjacent.adjacent = true;
  grown.amplitude = 1.3f;
  grown.query_growth = 0.4f;
  grown.query_period = 3;
  struct Case {
    AttentionShape shape;
    Rotation rotation;
  };
  const Case cases[] = {{{2, 7, 4, 2, 6}, plain},          {{2, 5, 2, 1, 32}, wide},
                        {{2, 5, 2, 1, 32}, partial},       {{2, 5, 2, 1, 32}, adjacent},
                        {{2, 7, 4, 2, 11}, part_adjacent}, {{2, 5, 2, 1, 32}, grown}};
  for (const auto& [s, rotation] : cases) {
    const Values qkv = random_qkv(s);
    const Tensor qkv_t = qkv_tensor(s, qkv);
    ops::rotary(ctx, s, qkv_t, 5, rotation, false);
    testing::expect_close(qkv_t, testing::reference::rotary(s, qkv, 5, rotation),
                          testing::tolerance("rotary", dtype()), "rotated");
    // The backward is the transpose: the inner products of both sides are the same.
    const Values dy = random_qkv(s, 3);
    const Tensor dy_t = qkv_tensor(s, dy);
    ops::rotary(ctx, s, dy_t, 5, rotation, true);
    const double there =
        testing::inner_product(dy, testing::reference::rotary(s, qkv, 5, rotation));
    const double back = testing::inner_product(testing::values_of(dy_t), qkv);
    const double bound =
        std::sqrt(testing::inner_product(dy, dy) * testing::inner_product(qkv, qkv));
    EXPECT_NEAR(there, back, 2 * testing::tolerance("rotary", dtype()) * bound);
  }
  const AttentionShape odd = {2, 7, 4, 2, 5};
  EXPECT_THROW(ops::rotary(ctx, odd, output({14, odd.row()}), 0, plain, false), InternalError);
  EXPECT_THROW(ops::rotary(ctx, odd, output({14, odd.row()}), 0, {}, false), InternalError);
}

TEST_P(Attention, RefusesWhatDoesNotFit) {
  const AttentionShape s = {2, 4, 4, 2, 8};
  const Tensor qkv = output({8, s.row()}), out = output({8, 32});
  const Tensor log_sum = testing::make_output(ctx, {2 * 4 * 4}, DType::kF32);
  EXPECT_THROW(ops::attention(ctx, {2, 4, 4, 3, 8}, qkv, Tensor(), out, log_sum), InternalError);
  AttentionShape both_ways = {2, 4, 4, 2, 8, false};
  both_ways.window = 2;
  EXPECT_THROW(ops::attention(ctx, both_ways, qkv, Tensor(), out, log_sum), InternalError);
  EXPECT_THROW(ops::attention(ctx, s, qkv.rows(0, 4), Tensor(), out, log_sum), InternalError);
  EXPECT_THROW(ops::attention(ctx, s, qkv, Tensor(), out.rows(0, 4), log_sum), InternalError);
  EXPECT_THROW(ops::attention(ctx, s, qkv, Tensor(), out, log_sum.flat_range(0, 3)), InternalError);
  EXPECT_THROW(ops::attention(ctx, s, qkv, log_sum, out, log_sum), InternalError);
  EXPECT_THROW(ops::attention(ctx, s, qkv, {Tensor(), log_sum}, out, log_sum), InternalError);
  EXPECT_THROW(ops::attention(ctx, s, qkv, {Tensor(), rows_tensor({1})}, out, log_sum),
               InternalError);
  EXPECT_THROW(ops::attention_backward(ctx, s, qkv, Tensor(), out, log_sum, out, qkv),
               InternalError);
}

TRIREME_FOR_EACH_DTYPE(Attention);

}  // namespace
}  // namespace trireme
