// The vocabulary's matrix: its padding in memory, which nothing but memory may see, and the slices
// of its loss.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/philox.h"
#include "trireme/nn/layers.h"
#include "trireme/nn/vocabulary_sizes.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/softmax_loss.h"

#include "support/mpi_test.h"

namespace trireme::testing {
namespace {

using nn::loss_slice_bytes;
using nn::loss_slice_rows;
using nn::LossSizes;

constexpr std::int64_t kGib = std::int64_t{1} << 30;
constexpr std::int64_t kLlama = 128256;  // the vocabulary of Llama 3, a multiple of 64

TEST(VocabularySizes, RowsArePaddedToAMultipleOf64OnEachRank) {
  EXPECT_EQ(nn::vocabulary_rows_in_memory(50257, 1), 50304);
  EXPECT_EQ(nn::vocabulary_rows_in_memory(50257, 2), 25152);  // of 25129
  EXPECT_EQ(nn::vocabulary_rows_in_memory(97, 4), 64);        // of 25
  EXPECT_EQ(nn::vocabulary_rows_in_memory(kLlama, 1), kLlama);
  EXPECT_EQ(nn::vocabulary_rows_in_memory(kLlama, 8), 16064);  // of 16032
  EXPECT_EQ(nn::vocabulary_rows_in_memory(3, 4), 64);
}

TEST(VocabularySizes, APaddedSplitCoversEveryRowOnce) {
  for (const std::int64_t vocabulary : {3, 64, 97, 50257}) {
    for (const int parts : {1, 2, 4, 8}) {
      std::int64_t next = 0;
      for (int part = 0; part < parts; ++part) {
        const auto p =
            nn::Placement::split({vocabulary, 5}, 0, parts, part, nn::kVocabularyMultiple);
        EXPECT_EQ(p.local[0], nn::vocabulary_rows_in_memory(vocabulary, parts));
        EXPECT_EQ(p.local[1], 5);
        EXPECT_EQ(p.offset[0], next);
        next += p.extent[0];
      }
      EXPECT_EQ(next, vocabulary) << parts << " parts";
    }
  }
}

TEST(LossSlices, KeepTheLogitsNearTheCachesOfACpu) {
  EXPECT_EQ(loss_slice_rows({.rows = 8192, .classes = kLlama}), 128);
  EXPECT_EQ(loss_slice_rows({.rows = 8192, .classes = kLlama, .compute = DType::kBF16}), 128);
  EXPECT_EQ(loss_slice_rows({.rows = 8192, .classes = 262144}), 128);
  EXPECT_EQ(loss_slice_rows({.rows = 8192, .classes = 1 << 20}), 32);
  EXPECT_EQ(loss_slice_rows({.rows = 8192, .classes = 50304}), 166);
  EXPECT_EQ(loss_slice_rows({.rows = 100, .classes = 320}), 100);
  EXPECT_EQ(loss_slice_rows({.rows = 100, .classes = 1 << 24}), 2);
  EXPECT_EQ(loss_slice_rows({.rows = 100, .classes = 1 << 26}), 1);
  EXPECT_EQ(loss_slice_bytes({.rows = 100, .classes = 320}), 100 * 320 * 4);
  LossSizes sizes{.rows = 8192, .classes = 320, .compute = DType::kBF16};
  const std::int64_t slice = loss_slice_rows(sizes);
  EXPECT_EQ(loss_slice_bytes(sizes), slice * 320 * 6);
  sizes.logits = DType::kBF16;  // the same slices
  EXPECT_EQ(loss_slice_rows(sizes), slice);
  EXPECT_EQ(loss_slice_bytes(sizes), slice * 320 * 2);
}

TEST(LossSlices, AreFewOnAGpu) {
  const auto rows = [](std::int64_t count, std::int64_t classes, DType compute, std::int64_t gib) {
    return loss_slice_rows(
        {.rows = count, .classes = classes, .compute = compute, .gpu_memory = gib * kGib});
  };
  // Three passes over the matrix in the place of 126; two; four and five in the place of 395.
  EXPECT_EQ(rows(8192, kLlama, DType::kBF16, 80), 2752);
  EXPECT_EQ(rows(8192, kLlama, DType::kBF16, 141), 4096);
  EXPECT_EQ(loss_slice_rows({65536, 50304, DType::kBF16, 141 * kGib, DType::kBF16}), 16384);
  EXPECT_EQ(rows(65536, 50304, DType::kBF16, 141), 13120);
  EXPECT_EQ(rows(8192, kLlama / 4, DType::kBF16, 80), 8192);
  EXPECT_EQ(rows(8192, 50304, DType::kF32, 80), 8192);
  EXPECT_EQ(rows(9000, 50304, DType::kBF16, 80), 4544);  // two of 4544 and 4456
  EXPECT_EQ(rows(1000, 50304, DType::kBF16, 80), 1000);
  EXPECT_EQ(rows(8192, 50304, DType::kBF16, 8), 832);  // a small GPU
  EXPECT_EQ(rows(8192, kLlama, DType::kBF16, 1), 43);  // never less than 32 MiB
  EXPECT_EQ(rows(8192, 1 << 24, DType::kF32, 1), 1);
  EXPECT_EQ(rows(16384, 262144, DType::kBF16, 1000), 5504);  // slices below 2^31 logits
}

TEST(LossSlices, StayWithinTheirShareAndCoverTheRows) {
  for (const std::int64_t gib : {1, 8, 24, 80, 288}) {
    for (const std::int64_t classes : {64, 25152, 50304, 128256, 262144}) {
      for (const std::int64_t rows : {1, 63, 64, 65, 4096, 4097, 16384, 16385, 131072}) {
        for (const auto& [compute, logits] :
             {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kBF16, DType::kF32},
              std::pair{DType::kBF16, DType::kBF16}}) {
          const LossSizes sizes{rows, classes, compute, gib * kGib, logits};
          const std::int64_t slice = loss_slice_rows(sizes);
          ASSERT_GE(slice, 1);
          ASSERT_LE(slice, rows);
          EXPECT_LE(loss_slice_bytes(sizes), gib * kGib / 32);
          EXPECT_LT(slice * classes, std::int64_t{1} << 31);
          EXPECT_TRUE(slice == rows || slice < 64 || slice % 64 == 0) << rows << " " << classes;
        }
      }
    }
  }
}

// A matrix of `vocabulary` rows of kWidth, split over the ranks of this test.
constexpr std::int64_t kWidth = 6;

struct Table {
  Table(ops::Context& ctx, nn::ParameterSpec spec, DType compute = DType::kF32)
      : parameter(parameters.add(std::move(spec))) {
    parameters.form_groups("head");
    nn::FlatGroup& group = *parameters.groups().front();
    group.materialize(ctx, {.compute = compute}, ctx.allocate({group.elements()}, DType::kF32));
    group.draw_initial_values(ctx, 3);
    group.refresh_weights(ctx);
  }

  nn::ParameterSet parameters;
  nn::Parameter& parameter;
};

class Vocabulary : public ::testing::TestWithParam<std::int64_t> {
 protected:
  std::int64_t vocabulary() const { return GetParam(); }
  double weight(std::int64_t row, std::int64_t column) const {
    return whole_.parameter.weight().span<float>()[static_cast<std::size_t>(row * kWidth + column)];
  }
  Tensor random(std::int64_t rows, std::uint64_t seed) {
    const Tensor x = ctx_.allocate({rows, kWidth}, DType::kF32);
    philox_normals(seed, 0, x.span<float>());
    return x;
  }
  // Rows of the first, the last and some other tokens; every third has no target.
  nn::MicroBatch batch(std::int64_t rows) {
    nn::MicroBatch made;
    made.batch = 1;
    made.length = rows;
    const Tensor tokens = ctx_.allocate({rows}, DType::kI32);
    const Tensor targets = ctx_.allocate({rows}, DType::kI32);
    made.fields.set(nn::kTokens, tokens);
    made.fields.set(nn::kTargets, targets);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t token = i % 2 == 0 ? i * 29 % vocabulary() : vocabulary() - 1 - i % 7;
      tokens.data<std::int32_t>()[i] = static_cast<std::int32_t>(std::max<std::int64_t>(token, 0));
      targets.data<std::int32_t>()[i] =
          i % 3 == 1 ? ops::kMaskedTarget : tokens.data<std::int32_t>()[i];
    }
    made.loss_sum = ctx_.allocate({1}, DType::kF64);
    ops::fill(ctx_, made.loss_sum, 0.0f);
    return made;
  }
  // This rank's rows of a gradient (vocabulary, kWidth), and zeros in the padding.
  static void expect_gradient(const Table& table, const std::vector<double>& expected,
                              double tolerance = 1e-5) {
    const nn::Placement& p = table.parameter.placement();
    const auto values = table.parameter.gradient().span<float>();
    double largest = 0.0, scale = 0.0, padding = 0.0;
    for (std::int64_t i = 0; i < p.local[0] * kWidth; ++i) {
      const double got = values[static_cast<std::size_t>(i)];
      if (i >= p.extent[0] * kWidth) {
        padding = std::max(padding, std::abs(got));
        continue;
      }
      const double wanted = expected[static_cast<std::size_t>(p.offset[0] * kWidth + i)];
      largest = std::max(largest, std::abs(got - wanted));
      scale = std::max(scale, std::abs(wanted));
    }
    EXPECT_LE(largest, tolerance * std::max(scale, 1e-3));
    EXPECT_EQ(padding, 0.0);
  }

  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid grid_{runtime(), {1, 1, runtime().size()}};
  const nn::TensorParallel parallel_{&grid_.comm(Axis::kTensor)};
  Table table_{ctx_, nn::vocabulary_parameter("table", parallel_, GetParam(), kWidth, 0.5f)};
  Table whole_{ctx_,
               {.name = "table",
                .placement = nn::Placement::whole({GetParam(), kWidth}),
                .initial = nn::Initializer::normal(0.5f),
                .holders = {}}};
};

struct Contributions : nn::GradientListener {
  void contributed(const nn::Parameter&) override { ++count; }
  int count = 0;
};

double rounded(double value, DType type) {
  const auto number = static_cast<float>(value);
  return type == DType::kBF16 ? static_cast<float>(BFloat16(number)) : number;
}

// Cross entropy and its gradients in double, of a matrix without padding. All that types change are
// the roundings: of x and the matrix, of the logits, and of their gradient.
TEST_P(Vocabulary, ItsLossSeesNoPadding) {
  constexpr std::int64_t kRows = 7;
  struct Types {
    DType compute, wanted, logits;
  };
  for (const auto& [compute, wanted, type] : {Types{DType::kF32, DType::kF32, DType::kF32},
                                              {DType::kF32, DType::kBF16, DType::kF32},
                                              {DType::kBF16, DType::kF32, DType::kF32},
                                              {DType::kBF16, DType::kBF16, DType::kBF16}}) {
    SCOPED_TRACE(std::string(name_of(compute)) + ", logits " + std::string(name_of(wanted)));
    const nn::MicroBatch rows = batch(kRows);
    const Tensor x = random(kRows, 5), x_in_type = ctx_.allocate(x.shape(), compute);
    ops::cast(ctx_, x, x_in_type);
    double loss = 0.0;
    std::vector<double> dx(kRows * kWidth, 0.0);
    std::vector<double> dtable(static_cast<std::size_t>(vocabulary() * kWidth), 0.0);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::int32_t target =
          rows.field(nn::kTargets).span<std::int32_t>()[static_cast<std::size_t>(r)];
      if (target == ops::kMaskedTarget) continue;
      const auto at = [&](std::int64_t c) {
        return rounded(x.span<float>()[static_cast<std::size_t>(r * kWidth + c)], compute);
      };
      const auto of_table = [&](std::int64_t v, std::int64_t c) {
        return rounded(weight(v, c), compute);
      };
      std::vector<double> logits(static_cast<std::size_t>(vocabulary()), 0.0);
      double sum = 0.0;
      for (std::int64_t v = 0; v < vocabulary(); ++v) {
        double& logit = logits[static_cast<std::size_t>(v)];
        for (std::int64_t c = 0; c < kWidth; ++c) logit += at(c) * of_table(v, c);
        logit = rounded(logit, type);
        sum += std::exp(logit);
      }
      loss += std::log(sum) - logits[static_cast<std::size_t>(target)];
      for (std::int64_t v = 0; v < vocabulary(); ++v) {
        const double d = rounded(
            std::exp(logits[static_cast<std::size_t>(v)]) / sum - (v == target ? 1 : 0), compute);
        for (std::int64_t c = 0; c < kWidth; ++c) {
          dx[static_cast<std::size_t>(r * kWidth + c)] += d * of_table(v, c);
          dtable[static_cast<std::size_t>(v * kWidth + c)] += d * at(c);
        }
      }
    }

    Table table(ctx_, nn::vocabulary_parameter("table", parallel_, vocabulary(), kWidth, 0.5f),
                compute);
    nn::Tape tape(ctx_, true);
    const nn::Value input = tape.input(x_in_type, true);
    nn::vocabulary_loss(tape, parallel_, rows, input, table.parameter, nullptr, {}, wanted);
    tape.backward({}, {});
    // Logits that are rounded, or are not, move the loss by far more.
    EXPECT_NEAR(rows.loss_sum.data<double>()[0] / loss, 1.0, 3e-6);
    const bool narrow = compute == DType::kBF16;
    const Tensor got = ctx_.allocate(x.shape(), DType::kF32);
    ops::cast(ctx_, tape.take_gradient(input.slot()), got);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      EXPECT_NEAR(got.span<float>()[i], dx[i], narrow ? 0.01 : 1e-5) << i;
    }
    expect_gradient(table, dtable, narrow ? 1e-3 : 1e-5);
    const nn::MicroBatch again = batch(kRows);
    nn::Tape unrecorded(ctx_, false);
    nn::vocabulary_loss(unrecorded, parallel_, again, unrecorded.input(x_in_type, false),
                        table.parameter, nullptr, {}, wanted);
    EXPECT_EQ(again.loss_sum.data<double>()[0], rows.loss_sum.data<double>()[0]) << "evaluation";
  }
}

TEST_P(Vocabulary, ItsEmbeddingReadsAndWritesNoPadding) {
  constexpr std::int64_t kRows = 20;
  const nn::MicroBatch rows = batch(kRows);
  const Tensor dy = random(kRows, 6);
  const nn::VocabularyEmbedding embedding({table_.parameters, parallel_, "embedding"},
                                          table_.parameter);
  nn::Tape tape(ctx_, true);
  const nn::Value y = embedding.forward(tape, rows);
  std::vector<double> dtable(static_cast<std::size_t>(vocabulary() * kWidth), 0.0);
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
    const std::int64_t token =
        rows.field(nn::kTokens).span<std::int32_t>()[static_cast<std::size_t>(i / kWidth)];
    EXPECT_EQ(y.tensor().span<float>()[static_cast<std::size_t>(i)],
              static_cast<float>(weight(token, i % kWidth)));
    dtable[static_cast<std::size_t>(token * kWidth + i % kWidth)] +=
        double{dy.span<float>()[static_cast<std::size_t>(i)]};
  }
  tape.backward({y.slot()}, {dy});
  expect_gradient(table_, dtable);
}

// Nobody can draw a token that is padding.
TEST_P(Vocabulary, ItsLastLogitsAreOfItsTokensAlone) {
  nn::MicroBatch rows = batch(6);
  rows.batch = 2;
  rows.length = 3;
  const Tensor x = random(6, 7);
  nn::Tape tape(ctx_, false);
  const Tensor logits =
      nn::last_logits(tape, parallel_, rows, tape.input(x, false), table_.parameter);
  ASSERT_EQ(logits.shape(), (Shape{2, vocabulary()}));
  for (std::int64_t i = 0; i < 2 * vocabulary(); ++i) {
    const std::int64_t row = i / vocabulary() * 3 + 2;
    double expected = 0.0;
    for (std::int64_t c = 0; c < kWidth; ++c) {
      expected += double{x.span<float>()[static_cast<std::size_t>(row * kWidth + c)]} *
                  weight(i % vocabulary(), c);
    }
    ASSERT_NEAR(logits.span<float>()[static_cast<std::size_t>(i)], expected, 1e-5) << i;
  }
}

// The bias is split and padded as the matrix.
TEST_P(Vocabulary, ABiasShiftsTheLogits) {
  constexpr std::int64_t kRows = 7;
  Table bias(ctx_, nn::vocabulary_bias("bias", parallel_, vocabulary()));
  EXPECT_FALSE(bias.parameter.spec().decay);
  const auto shift = [](std::int64_t v) { return 0.25f * static_cast<float>(v % 9 - 4); };
  const nn::Placement& p = bias.parameter.placement();
  for (std::int64_t i = 0; i < p.extent[0]; ++i) {
    bias.parameter.weight().data<float>()[i] = shift(p.offset[0] + i);
  }
  const Tensor x = random(kRows, 5);
  const Tensor plain = nn::vocabulary_logits(ctx_, parallel_, x, table_.parameter, nullptr);
  const Tensor logits =
      nn::vocabulary_logits(ctx_, parallel_, x, table_.parameter, &bias.parameter);
  ASSERT_EQ(logits.shape(), (Shape{kRows, vocabulary()}));
  const nn::MicroBatch rows = batch(kRows);
  double loss = 0.0;
  std::vector<double> dbias(static_cast<std::size_t>(vocabulary()), 0.0);
  for (std::int64_t r = 0; r < kRows; ++r) {
    const auto logit = [&](std::int64_t v) {
      return double{plain.data<float>()[r * vocabulary() + v]} + double{shift(v)};
    };
    double sum = 0.0;
    for (std::int64_t v = 0; v < vocabulary(); ++v) {
      ASSERT_NEAR(logits.data<float>()[r * vocabulary() + v], logit(v), 1e-5) << r << " " << v;
      sum += std::exp(logit(v));
    }
    const std::int32_t target = rows.field(nn::kTargets).data<std::int32_t>()[r];
    if (target == ops::kMaskedTarget) continue;
    loss += std::log(sum) - logit(target);
    for (std::int64_t v = 0; v < vocabulary(); ++v) {
      dbias[static_cast<std::size_t>(v)] += std::exp(logit(v)) / sum - (v == target ? 1 : 0);
    }
  }

  Contributions contributions;
  nn::Tape tape(ctx_, true, &contributions);
  nn::vocabulary_loss(tape, parallel_, rows, tape.input(x, true), table_.parameter,
                      &bias.parameter);
  tape.backward({}, {});
  EXPECT_EQ(contributions.count, 2);
  EXPECT_NEAR(rows.loss_sum.data<double>()[0] / loss, 1.0, 1e-5);
  for (std::int64_t i = 0; i < p.local[0]; ++i) {
    const double got = bias.parameter.gradient().data<float>()[i];
    const std::int64_t v = p.offset[0] + i;
    EXPECT_NEAR(got, i < p.extent[0] ? dbias[static_cast<std::size_t>(v)] : 0.0, 1e-5) << v;
  }
  const nn::MicroBatch again = batch(kRows);
  nn::Tape unrecorded(ctx_, false);
  nn::vocabulary_loss(unrecorded, parallel_, again, unrecorded.input(x, false), table_.parameter,
                      &bias.parameter);
  EXPECT_EQ(again.loss_sum.data<double>()[0], rows.loss_sum.data<double>()[0]);
}

// The rule of a GPU, by the operations of the CPU: two slices where there would be one.
TEST_P(Vocabulary, SlicesDoNotChangeTheLoss) {
  if (vocabulary() > 1000) GTEST_SKIP() << "slow";
  constexpr std::int64_t kRows = 20000;
  const Tensor x = random(kRows, 8);
  struct Result {
    double loss;
    std::vector<float> dx, dtable;
    std::size_t workspace;
  };
  const auto run = [&](std::int64_t gpu_memory) {
    ctx_.gpu_memory = gpu_memory;
    const nn::MicroBatch rows = batch(kRows);
    const Tensor gradient = table_.parameter.gradient();
    ops::fill(ctx_, gradient, 0.0f);
    nn::Tape tape(ctx_, true);
    const nn::Value input = tape.input(x, true);
    nn::vocabulary_loss(tape, parallel_, rows, input, table_.parameter);
    tape.backward({}, {});
    const Tensor found = tape.take_gradient(input.slot());
    const auto dx = found.span<float>(), dtable = gradient.span<float>();
    const auto use = static_cast<std::size_t>(MemoryUse::kWorkspace);
    return Result{rows.loss_sum.data<double>()[0],
                  {dx.begin(), dx.end()},
                  {dtable.begin(), dtable.end()},
                  ctx_.allocator->stats().peak[use]};
  };
  const std::int64_t classes = table_.parameter.placement().local[0];
  const Result two = run(kGib), one = run(0);  // the second has the higher peak
  EXPECT_EQ(loss_slice_rows({.rows = kRows, .classes = classes}), kRows);
  EXPECT_EQ(loss_slice_rows({.rows = kRows, .classes = classes, .gpu_memory = kGib}), 10048);
  EXPECT_NEAR(two.loss / one.loss, 1.0, 1e-9);
  EXPECT_LT(two.workspace, one.workspace);
  for (std::size_t i = 0; i < one.dx.size(); ++i) ASSERT_NEAR(two.dx[i], one.dx[i], 1e-6);
  for (std::size_t i = 0; i < one.dtable.size(); ++i) {
    ASSERT_NEAR(two.dtable[i], one.dtable[i], 4e-3);
  }
}

// In training the forward makes no logits, and the backward makes them slice by slice, once, for
// everything that needs them.
TEST_P(Vocabulary, TheLogitsOfAllRowsNeverExistAtOnce) {
  const std::int64_t count = vocabulary() > 1000 ? 1400 : 20000;
  const std::int64_t classes = table_.parameter.placement().local[0];
  // A small vocabulary has several slices only by the rule of a GPU.
  ctx_.gpu_memory = vocabulary() > 1000 ? 0 : kGib;
  const LossSizes sizes{.rows = count, .classes = classes, .gpu_memory = ctx_.gpu_memory};
  ASSERT_LT(loss_slice_rows(sizes), count);
  const nn::MicroBatch rows = batch(count);
  Contributions contributions;
  nn::Tape tape(ctx_, true, &contributions);
  const nn::Value input = tape.input(random(count, 9), true);
  nn::vocabulary_loss(tape, parallel_, rows, input, table_.parameter);
  const auto most = [&] {
    return ctx_.allocator->stats().peak[static_cast<std::size_t>(MemoryUse::kWorkspace)];
  };
  EXPECT_EQ(most(), 0u);
  EXPECT_EQ(rows.loss_sum.data<double>()[0], 0.0);
  tape.backward({}, {}, /*defer_weights=*/true);
  EXPECT_TRUE(tape.take_gradient(input.slot()).defined());
  EXPECT_GE(static_cast<std::int64_t>(most()), loss_slice_bytes(sizes));
  EXPECT_LT(static_cast<std::int64_t>(most()), count * classes * 4);
  EXPECT_GT(rows.loss_sum.data<double>()[0], 0.0);
  // The table's gradient is not deferred.
  EXPECT_EQ(contributions.count, 1);
  const Tensor gradient = ctx_.allocate(table_.parameter.gradient().shape(), DType::kF32);
  ops::cast(ctx_, table_.parameter.gradient(), gradient);
  tape.backward_weights();
  EXPECT_EQ(contributions.count, 1);
  EXPECT_EQ(std::memcmp(gradient.raw(), table_.parameter.gradient().raw(), gradient.bytes()), 0);
}

// Fewer tokens than ranks, an odd number, a multiple of 64 on one rank, GPT-2's.
INSTANTIATE_TEST_SUITE_P(Sizes, Vocabulary, ::testing::Values(3, 97, 128, 50257));

}  // namespace
}  // namespace trireme::testing
