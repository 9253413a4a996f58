#include "trireme/ops/embedding.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using testing::Values;

class Embedding : public testing::OpsTest {
 protected:
  static constexpr std::int64_t kLocal = 6, kColumns = 1037, kFirst = 10;
  // Some lie in the local part [10, 16), twice the same; others below, above, and as far as it
  // goes.
  const std::vector<std::int32_t> numbers = {12, 10, 15, 12, 9, 16, 0, 2147483647, 12};
  const Tensor tokens = testing::make_tensor(ctx, numbers);
  const std::int64_t rows = static_cast<std::int64_t>(numbers.size());
};

TEST_P(Embedding, LooksUpItsPartOfTheVocabulary) {
  const Values table = random(1, kLocal * kColumns);
  const Tensor y = output({rows, kColumns});
  ops::embedding(ctx, tokens, tensor(table, {kLocal, kColumns}), kFirst, y);
  Values expected;
  for (const std::int64_t token : numbers) {
    for (std::int64_t c = 0; c < kColumns; ++c) {
      const bool here = kFirst <= token && token < kFirst + kLocal;
      expected.push_back(here ? table[static_cast<std::size_t>((token - kFirst) * kColumns + c)]
                              : 0.0);
    }
  }
  testing::expect_close(y, expected, 0.0, "y");
}

TEST_P(Embedding, GradientAddsUpAtAnyThreadCount) {
  const Values dy = random(2, rows * kColumns);
  Values expected(kLocal * kColumns, 0.25);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::int64_t row = numbers[i / kColumns] - kFirst;
    if (0 <= row && row < kLocal) {
      expected[static_cast<std::size_t>(row) * kColumns + i % kColumns] += dy[i];
    }
  }
  std::string bits;
  for (const int threads : {1, 2, 3}) {
    ctx.threads = threads;
    // One more row in memory, which nothing may touch.
    const Tensor memory = testing::make_tensor(ctx, Values((kLocal + 1) * kColumns, 0.25),
                                               {kLocal + 1, kColumns}, DType::kF32);
    const Tensor dtable = memory.rows(0, kLocal);
    ops::embedding_backward(ctx, tokens, tensor(dy, {rows, kColumns}), kFirst, dtable);
    testing::expect_close(dtable, expected, testing::tolerance("embedding_backward", dtype()),
                          "dtable");
    testing::expect_close(memory.rows(kLocal, kLocal + 1), Values(kColumns, 0.25), 0.0, "beyond");
    if (!bits.empty()) {
      EXPECT_EQ(testing::bits_of(dtable), bits);
    }
    bits = testing::bits_of(dtable);
  }
}

// Rows enough for several tiles of a GPU's sort and pieces of its sums; the bits are those of a
// second run, in which the emulator's threads move in another order.
class EmbeddingOfManyRows : public Embedding {
 protected:
  static constexpr std::int64_t kMany = 2500, kWide = 16;

  // token_of(row) in [0, table) counts, others belong to no row of the table.
  void check(std::int64_t table, const std::function<std::int64_t(std::int64_t)>& token_of) {
    const Values dy = random(2, kMany * kWide);
    std::vector<std::int32_t> many;
    Values expected(static_cast<std::size_t>(table * kWide), 0.25);
    for (std::int64_t row = 0; row < kMany; ++row) {
      many.push_back(static_cast<std::int32_t>(kFirst + token_of(row)));
      if (token_of(row) >= table) continue;
      for (std::int64_t c = 0; c < kWide; ++c) {
        expected[static_cast<std::size_t>(token_of(row) * kWide + c)] +=
            dy[static_cast<std::size_t>(row * kWide + c)];
      }
    }
    std::string bits;
    for (int run = 0; run < 2; ++run) {
      const Tensor dtable = testing::make_tensor(
          ctx, Values(static_cast<std::size_t>(table * kWide), 0.25), {table, kWide}, DType::kF32);
      ops::embedding_backward(ctx, testing::make_tensor(ctx, many), tensor(dy, {kMany, kWide}),
                              kFirst, dtable);
      testing::expect_close(dtable, expected, testing::tolerance("embedding_backward", dtype()),
                            "dtable");
      if (run == 0) bits = testing::bits_of(dtable);
      EXPECT_TRUE(testing::bits_of(dtable) == bits);
    }
  }
};

TEST_P(EmbeddingOfManyRows, OneTokenIsFarMoreFrequent) {
  check(70, [](std::int64_t row) { return row % 3 == 0 ? 40 : row * 31 % 75; });
}
TEST_P(EmbeddingOfManyRows, OneTokenIsEverywhere) {
  check(3, [](std::int64_t) { return 1; });
}
TEST_P(EmbeddingOfManyRows, RunsEndWhereverPiecesDo) {
  for (const std::int64_t length : {63, 64, 65, 128}) {
    check(40, [length](std::int64_t row) { return row / length; });
  }
}
TEST_P(EmbeddingOfManyRows, TokensOfThreeBytes) {
  check(70000, [](std::int64_t row) { return row * 7919 % 71000; });
}

TEST_P(Embedding, Positions) {
  constexpr std::int64_t kPositions = 8, kLength = 5, kFirstRow = 3, kFirstPosition = 2, kRows = 12;
  const Values x = random(1, kRows * kColumns), table = random(2, kPositions * kColumns);
  const Tensor y = output({kRows, kColumns});
  ops::add_positions(ctx, tensor(x, {kRows, kColumns}), tensor(table, {kPositions, kColumns}),
                     kFirstRow, kLength, kFirstPosition, y);
  Values expected = x, dtable(kPositions * kColumns, 0.5);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t position = (kFirstRow + i / kColumns) % kLength;
    expected[i] += table[(kFirstPosition + position) * kColumns + i % kColumns];
    dtable[position * kColumns + i % kColumns] += x[i];
  }
  testing::expect_close(y, expected, testing::tolerance("embedding", dtype()) + 1e-7, "y");
  const Tensor in_place = tensor(x, {kRows, kColumns});
  ops::add_positions(ctx, in_place, tensor(table, {kPositions, kColumns}), kFirstRow, kLength,
                     kFirstPosition, in_place);
  EXPECT_EQ(testing::bits_of(in_place), testing::bits_of(y));
  const Tensor gradient = testing::make_tensor(ctx, Values(kPositions * kColumns, 0.5),
                                               {kPositions, kColumns}, DType::kF32);
  ops::add_positions_backward(ctx, tensor(x, {kRows, kColumns}), kFirstRow, kLength, gradient);
  testing::expect_close(gradient, dtable, testing::tolerance("embedding_backward", dtype()),
                        "dtable");
}

TEST_P(Embedding, CopiesRowsOfSamples) {
  constexpr std::int64_t kBatch = 3, kFrom = 4, kTo = 6;
  const Values x = random(1, kBatch * kFrom * kColumns),
               before = random(2, kBatch * kTo * kColumns);
  for (const bool shared : {false, true}) {
    const ops::SampleRows which = {kBatch, 2, shared ? 0 : kFrom, 1, kTo, 3};
    const Tensor y = tensor(before, {kBatch * kTo, kColumns});
    Values expected = testing::values_of(y);
    const Tensor from =
        tensor(Values(x.begin(), x.begin() + (shared ? 1 : kBatch) * kFrom * kColumns),
               {(shared ? 1 : kBatch) * kFrom, kColumns});
    const Values given = testing::values_of(from);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      std::copy_n(given.begin() + ((shared ? 0 : b * kFrom) + 1) * kColumns, 2 * kColumns,
                  expected.begin() + (b * kTo + 3) * kColumns);
    }
    ops::copy_rows(ctx, which, from, y);
    EXPECT_EQ(testing::values_of(y), expected) << shared;
  }
  const Tensor y = output({kBatch * kTo, kColumns});
  const auto refuses = [&](const ops::SampleRows& which) {
    EXPECT_THROW(ops::copy_rows(ctx, which, y, y), InternalError);
  };
  refuses({kBatch, 2, kTo, 5, kTo, 0});
  refuses({kBatch, 2, kTo, 0, kTo, 5});
  refuses({kBatch, 2, kTo, -1, kTo, 0});
  refuses({kBatch + 1, 2, kTo, 0, kTo, 0});
}

TEST_P(Embedding, RefusesWhatDoesNotFit) {
  const Tensor table = output({kLocal, kColumns}), y = output({rows, kColumns});
  EXPECT_THROW(ops::embedding(ctx, tokens, table, 0, output({rows - 1, kColumns})), InternalError);
  EXPECT_THROW(ops::embedding(ctx, tokens, table, 0, output({rows, kColumns - 1})), InternalError);
  EXPECT_THROW(ops::embedding(ctx, y, table, 0, y), InternalError);
  EXPECT_THROW(ops::embedding_backward(ctx, tokens, y, 0,
                                       testing::make_zeros(ctx, {kLocal, kColumns}, DType::kBF16)),
               InternalError);
  EXPECT_THROW(ops::add_positions(ctx, y, table, 0, kLocal + 1, 0, y), InternalError);
  EXPECT_THROW(ops::add_positions(ctx, y, table, 0, kLocal, 1, y), InternalError);
  EXPECT_THROW(
      ops::add_positions_backward(ctx, y, 0, kLocal + 1,
                                  testing::make_zeros(ctx, {kLocal, kColumns}, DType::kF32)),
      InternalError);
}

TRIREME_FOR_EACH_DTYPE(Embedding);
TRIREME_FOR_EACH_DTYPE(EmbeddingOfManyRows);

}  // namespace
}  // namespace trireme
