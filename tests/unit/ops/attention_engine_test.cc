// What a library of attention is given: the layouts of its operands, checked by an attention that
// sees nothing but them; and when it is asked at all.
#include "ops/attention_engine.h"

#include <cmath>

#include "trireme/ops/attention.h"

#include "ops/attention_operands.h"
#include "support/ops_reference.h"

namespace trireme {
namespace {

using ops::AttentionKind;
using ops::AttentionOperand;
using ops::AttentionShape;
using ops::OperandLayout;
using testing::Values;

constexpr AttentionShape kShape = {
    .batch = 2, .length = 7, .heads = 6, .kv_heads = 2, .head_size = 5};
constexpr std::int64_t kGroup = kShape.heads / kShape.kv_heads;  // query heads of a key head

// One operand, read and written by (batch, head, position, element).
class View {
 public:
  View(AttentionOperand operand, Values& values)
      : layout_(ops::layout_of(operand, kShape)), values_(values) {}
  double& operator()(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) {
    const auto& [extent, stride, offset] = layout_;
    EXPECT_TRUE(b < extent[0] && h < extent[1] && t < extent[2] && d < extent[3]);
    return values_.at(static_cast<std::size_t>(offset + b * stride[0] + h * stride[1] +
                                               t * stride[2] + d * stride[3]));
  }

 private:
  OperandLayout layout_;
  Values& values_;
};

// weight(b, h, t, s) of query t on key s.
double weight(View& query, View& key, View& log_sum, std::int64_t b, std::int64_t h, std::int64_t t,
              std::int64_t s) {
  double score = 0.0;
  for (std::int64_t d = 0; d < kShape.head_size; ++d) {
    score += query(b, h, t, d) * key(b, h / kGroup, s, d);
  }
  score /= std::sqrt(static_cast<double>(kShape.head_size));
  return std::exp(score - log_sum(b, h, t, 0));
}

template <class Body>
void for_each_query(Body body) {
  for (std::int64_t b = 0; b < kShape.batch; ++b) {
    for (std::int64_t h = 0; h < kShape.heads; ++h) {
      for (std::int64_t t = 0; t < kShape.length; ++t) body(b, h, t);
    }
  }
}

class AttentionLayouts : public ::testing::Test {
 protected:
  AttentionLayouts() {
    const std::int64_t rows = kShape.batch * kShape.length;
    const std::int64_t width = kShape.heads * kShape.head_size;
    qkv = testing::random_values(1, rows * kShape.row());
    dout = testing::random_values(2, rows * width);
    const Tensor qkv_t = testing::make_tensor(ctx, qkv, {rows, kShape.row()}, DType::kF32);
    const Tensor out_t = testing::make_output(ctx, {rows, width}, DType::kF32);
    const Tensor log_sum_t = testing::make_output(ctx, {rows * kShape.heads}, DType::kF32);
    const Tensor dqkv_t = testing::make_output(ctx, qkv_t.shape(), DType::kF32);
    ops::attention(ctx, kShape, qkv_t, {}, out_t, log_sum_t);
    ops::attention_backward(ctx, kShape, qkv_t, {}, out_t, log_sum_t,
                            testing::make_tensor(ctx, dout, out_t.shape(), DType::kF32), dqkv_t);
    out = testing::values_of(out_t);
    log_sum = testing::values_of(log_sum_t);
    dqkv = testing::values_of(dqkv_t);
  }

  ops::Context ctx = ops::make_cpu_context(1);
  Values qkv, dout, out, log_sum, dqkv;
};

TEST_F(AttentionLayouts, Forward) {
  View query(AttentionOperand::kQuery, qkv), key(AttentionOperand::kKey, qkv),
      value(AttentionOperand::kValue, qkv), log_sums(AttentionOperand::kLogSum, log_sum);
  Values expected(out.size(), std::nan(""));
  View result(AttentionOperand::kOut, expected);
  for_each_query([&](std::int64_t b, std::int64_t h, std::int64_t t) {
    for (std::int64_t d = 0; d < kShape.head_size; ++d) {
      double sum = 0.0;
      for (std::int64_t s = 0; s <= t; ++s) {
        sum += weight(query, key, log_sums, b, h, t, s) * value(b, h / kGroup, s, d);
      }
      result(b, h, t, d) = sum;
    }
  });
  EXPECT_LT(testing::relative_error(out, expected), 1e-5);
}

// Flash attention's backward, straight from its formulas.
TEST_F(AttentionLayouts, Backward) {
  View query(AttentionOperand::kQuery, qkv), key(AttentionOperand::kKey, qkv),
      value(AttentionOperand::kValue, qkv), log_sums(AttentionOperand::kLogSum, log_sum),
      outs(AttentionOperand::kOut, out), douts(AttentionOperand::kOutGradient, dout);
  Values expected(dqkv.size(), 0.0);
  View dquery(AttentionOperand::kQueryGradient, expected),
      dkey(AttentionOperand::kKeyGradient, expected),
      dvalue(AttentionOperand::kValueGradient, expected);
  const double scale = 1.0 / std::sqrt(static_cast<double>(kShape.head_size));
  for_each_query([&](std::int64_t b, std::int64_t h, std::int64_t t) {
    const std::int64_t shared = h / kGroup;
    double own = 0.0;
    for (std::int64_t d = 0; d < kShape.head_size; ++d) own += douts(b, h, t, d) * outs(b, h, t, d);
    for (std::int64_t s = 0; s <= t; ++s) {
      const double p = weight(query, key, log_sums, b, h, t, s);
      double dp = 0.0;
      for (std::int64_t d = 0; d < kShape.head_size; ++d) {
        dp += douts(b, h, t, d) * value(b, shared, s, d);
      }
      const double dscore = p * (dp - own) * scale;
      for (std::int64_t d = 0; d < kShape.head_size; ++d) {
        dvalue(b, shared, s, d) += p * douts(b, h, t, d);
        dquery(b, h, t, d) += dscore * key(b, shared, s, d);
        dkey(b, shared, s, d) += dscore * query(b, h, t, d);
      }
    }
  });
  EXPECT_LT(testing::relative_error(dqkv, expected), 1e-5);
}

// Takes what it is told to, and writes down what it was called with.
class ScriptedEngine : public ops::AttentionEngine {
 public:
  const std::string& why_not(const AttentionKind& kind) override {
    asked.push_back(kind);
    return reason;
  }
  void forward(ops::Context&, const AttentionKind&, const Tensor&, const Tensor&,
               const Tensor&) override {
    ++forwards;
  }
  void backward(ops::Context&, const AttentionKind&, const Tensor&, const Tensor&, const Tensor&,
                const Tensor&, const Tensor&) override {
    ++backwards;
  }
  std::string_view description() const override { return "a library"; }

  std::string reason;
  std::vector<AttentionKind> asked;
  int forwards = 0, backwards = 0;
};

class AttentionDispatch : public ::testing::Test {
 protected:
  AttentionDispatch() {
    ctx.attention = engine;
    const std::int64_t rows = kShape.batch * kShape.length;
    qkv = ctx.allocate({rows, kShape.row()}, DType::kBF16);
    dqkv = ctx.allocate(qkv.shape(), DType::kBF16);
    out = ctx.allocate({rows, kShape.heads * kShape.head_size}, DType::kBF16);
    log_sum = ctx.allocate({rows * kShape.heads}, DType::kF32);
    ctx.device = {DeviceKind::kCuda, 0};  // no kernel of ours can run here: it would throw
  }
  void forward(const Tensor& first_key = {}) {
    ops::attention(ctx, kShape, qkv, first_key, out, log_sum);
  }

  std::shared_ptr<ScriptedEngine> engine = std::make_shared<ScriptedEngine>();
  ops::Context ctx = ops::make_cpu_context(1);
  Tensor qkv, dqkv, out, log_sum;
};

TEST_F(AttentionDispatch, AsksTheLibraryFirst) {
  forward();
  ops::attention_backward(ctx, kShape, qkv, {}, out, log_sum, out, dqkv);
  EXPECT_EQ(engine->forwards, 1);
  EXPECT_EQ(engine->backwards, 1);
  EXPECT_EQ(engine->asked.front(), (AttentionKind{kShape, DType::kBF16, false}));
  const ops::AttentionChoice choice = ops::attention_choice(ctx, kShape, DType::kBF16, false);
  EXPECT_EQ(choice.by, "a library");
  EXPECT_EQ(choice.text, "a library");
}

TEST_F(AttentionDispatch, TakesItsOwnKernelWhereTheLibraryDoesNot) {
  engine->reason = "too odd";
  EXPECT_ANY_THROW(forward());
  EXPECT_EQ(engine->forwards, 0);
  const ops::AttentionChoice choice = ops::attention_choice(ctx, kShape, DType::kBF16, true);
  EXPECT_EQ(choice.by, "own kernel");
  EXPECT_EQ(choice.text, "own kernel (a library: too odd)");
}

TEST_F(AttentionDispatch, SaysThatAnyOrderIsAllowed) {
  ctx.any_order = true;
  forward();
  EXPECT_TRUE(engine->asked.front().any_order);
  EXPECT_EQ(ops::attention_choice(ctx, kShape, DType::kBF16, false).by,
            "a library, gradients in any order");
  EXPECT_TRUE(engine->asked.back().any_order);
  engine->reason = "too odd";  // our own kernels have one order
  EXPECT_EQ(ops::attention_choice(ctx, kShape, DType::kF32, false).by, "own kernel");
}

// On tensor cores where the type and the head size allow it.
TEST_F(AttentionDispatch, SaysWhichKernelOfItsOwn) {
  AttentionShape shape = kShape;
  const auto by = [&](DType dtype) { return ops::attention_choice(ctx, shape, dtype, true).by; };
  engine->reason = "too odd";
  for (const std::int64_t size : {8, 64, 128}) {
    shape.head_size = size;
    EXPECT_EQ(by(DType::kBF16), "own kernel on tensor cores") << size;
    EXPECT_EQ(by(DType::kF16), "own kernel on tensor cores") << size;
    EXPECT_EQ(by(DType::kF32), "own kernel") << size;
  }
  for (const std::int64_t size : {5, 60, 136, 256}) {
    shape.head_size = size;
    EXPECT_EQ(by(DType::kBF16), "own kernel") << size;
  }
  shape.head_size = 64;
  ctx.device = {};  // a CPU has none
  EXPECT_EQ(by(DType::kBF16), "own kernel");
}

TEST_F(AttentionDispatch, SaysWhyALibraryIsAbsent) {
  ctx.attention = ops::make_absent_attention("a library", "not in this build");
  EXPECT_ANY_THROW(forward());
  EXPECT_EQ(ops::attention_choice(ctx, kShape, DType::kBF16, false).text,
            "own kernel (a library: not in this build)");
  ctx.attention = nullptr;  // as on a CPU
  EXPECT_EQ(ops::attention_choice(ctx, kShape, DType::kBF16, false).text, "own kernel");
}

TEST_F(AttentionDispatch, SaysThatDocumentsAreMasked) {
  forward(ctx.allocate({kShape.batch * kShape.length}, DType::kI32));
  EXPECT_TRUE(engine->asked.front().masks_documents);
}

}  // namespace
}  // namespace trireme
