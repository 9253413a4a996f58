#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ops/block_scaled.h"

#include "support/ops_testing.h"

namespace trireme {
namespace {

using ops::BlockScaled;
using ops::ScaledBlocks;
using testing::Values;

constexpr std::int64_t kSide = ops::kScaledSide;

double value_of(std::size_t code) {
  E4M3 e4m3;
  e4m3.bits = static_cast<std::uint8_t>(code);
  return static_cast<double>(static_cast<float>(e4m3));
}

// The code of a value of at most 448: the nearest of all, the even one of two that are as near.
std::uint8_t nearest_code(double value) {
  std::size_t best = 0;
  for (std::size_t code = 1; code < 0x7f; ++code) {
    const double before = std::abs(value_of(best) - std::abs(value));
    const double now = std::abs(value_of(code) - std::abs(value));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80u : 0u));
}

// What the header says, element by element.
struct Plain {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;

  // `at`: the elements (rows, columns).
  template <class At>
  Plain(std::int64_t rows, std::int64_t columns, ScaledBlocks blocks, const At& at)
      : codes(static_cast<std::size_t>(rows * columns)),
        scales(static_cast<std::size_t>(
            BlockScaled::shape_of_scales(blocks, rows, columns).elements())) {
    const std::int64_t height = blocks == ScaledBlocks::kRows ? 1 : kSide;
    const std::int64_t wide = (columns / kSide + 3) / 4 * 4;
    for (std::int64_t i = 0; i < rows; i += height) {
      for (std::int64_t j = 0; j < columns; j += kSide) {
        const std::int64_t place =
            height == 1 ? j / kSide * rows + i : i / kSide * wide + j / kSide;
        scale(columns, at, {i, j, height}, scales[static_cast<std::size_t>(place)]);
      }
    }
  }

 private:
  struct Block {
    std::int64_t row, column, height;
  };
  template <class At>
  void scale(std::int64_t columns, const At& at, const Block& block, float& scale) {
    double largest = 0.0;
    bool finite = true;
    const auto each = [&](const auto& body) {
      for (std::int64_t i = block.row; i < block.row + block.height; ++i) {
        for (std::int64_t j = block.column; j < block.column + kSide; ++j) body(i, j);
      }
    };
    each([&](std::int64_t i, std::int64_t j) {
      finite = finite && std::isfinite(at(i, j));
      largest = std::max(largest, std::abs(at(i, j)));
    });
    double power = 0x1p-60;
    while (finite && largest > 448.0 * power) power *= 2.0;
    scale = finite ? static_cast<float>(power) : std::numeric_limits<float>::quiet_NaN();
    each([&](std::int64_t i, std::int64_t j) {
      codes[static_cast<std::size_t>(i * columns + j)] =
          finite ? nearest_code(at(i, j) / power) : std::uint8_t{0};
    });
  }
};

class BlockScaledTest : public ::testing::Test {
 protected:
  // `skip`: elements of the memory before x.
  void check(const Values& values, std::int64_t rows, std::int64_t columns, ScaledBlocks blocks,
             std::int64_t skip = 0) {
    Values padded(static_cast<std::size_t>(skip), 0.0);
    padded.insert(padded.end(), values.begin(), values.end());
    const Tensor x = testing::make_tensor(ctx, padded, {skip + rows * columns}, DType::kBF16)
                         .rows(skip, skip + rows * columns)
                         .reshape({rows, columns});
    const auto at = [&, exact = testing::values_of(x)](std::int64_t i, std::int64_t j) {
      return exact[static_cast<std::size_t>(i * columns + j)];
    };
    const Plain straight(rows, columns, blocks, at);
    const Plain turned(columns, rows, blocks,
                       [&](std::int64_t i, std::int64_t j) { return at(j, i); });
    for (const auto& [first, second] : {std::pair{true, true}, {true, false}, {false, true}}) {
      const BlockScaled a = first ? matrix(rows, columns, blocks) : BlockScaled();
      const BlockScaled b = second ? matrix(columns, rows, blocks) : BlockScaled();
      ops::scale_blocks(ctx, x, a, b);
      if (first) compare(a, straight, "straight");
      if (second) compare(b, turned, "turned");
    }
  }

  static void compare(const BlockScaled& made, const Plain& plain, const char* what) {
    const std::string codes = testing::bits_of(made.codes);
    const std::string scales = testing::bits_of(made.scales);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < plain.codes.size(); ++i) {
      if (static_cast<std::uint8_t>(codes[i]) == plain.codes[i] || ++wrong > 3) continue;
      ADD_FAILURE() << what << ": code " << i << " is " << int{static_cast<std::uint8_t>(codes[i])}
                    << ", not " << int{plain.codes[i]};
    }
    for (std::size_t i = 0; i < plain.scales.size(); ++i) {
      float scale = 0.0f;
      std::memcpy(&scale, scales.data() + 4 * i, 4);
      const bool same =
          scale == plain.scales[i] || (std::isnan(scale) && std::isnan(plain.scales[i]));
      if (same || ++wrong > 3) continue;
      ADD_FAILURE() << what << ": scale " << i << " is " << scale << ", not " << plain.scales[i];
    }
    EXPECT_EQ(wrong, 0u) << what;
  }

  BlockScaled matrix(std::int64_t rows, std::int64_t columns, ScaledBlocks blocks) {
    const BlockScaled made = ops::allocate_scaled(ctx, rows, columns, blocks);
    testing::upload(ctx, std::string(made.codes.bytes(), '\xff').data(), made.codes);
    testing::upload(ctx, std::string(made.scales.bytes(), '\xff').data(), made.scales);
    return made;
  }

  ops::Context ctx = testing::make_test_context();
};

constexpr ScaledBlocks kKinds[] = {ScaledBlocks::kRows, ScaledBlocks::kTiles};

TEST_F(BlockScaledTest, RandomValuesOfManySizes) {
  Values values = testing::random_values(1, 2 * kSide * 3 * kSide);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(i * 7 % 60) - 30);
  }
  for (const ScaledBlocks blocks : kKinds) check(values, 2 * kSide, 3 * kSide, blocks);
}

TEST_F(BlockScaledTest, FiveTilesInARowAndOneMemoryThatIsLessAligned) {
  const Values values = testing::random_values(2, kSide * 5 * kSide);
  for (const ScaledBlocks blocks : kKinds) {
    check(values, kSide, 5 * kSide, blocks);
    check(values, 5 * kSide, kSide, blocks, 3);
  }
}

// What ends a block's range, is not finite, or cannot be told from 0.
TEST_F(BlockScaledTest, ValuesAtTheEndsOfTheirRange) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double largest = std::ldexp(255.0, 120);  // of bf16
  const double ends[] = {0.0,
                         -0.0,
                         448.0,
                         450.0,  // above 448 in bf16
                         -1.75,
                         1.7578125,
                         largest,
                         -largest,
                         0x1p-133,
                         -0x1p-126,
                         std::ldexp(448.0, -60),
                         std::ldexp(450.0, -60),
                         std::ldexp(1.0, -70),
                         std::ldexp(1.5, -70),
                         kInfinity,
                         -kInfinity,
                         std::numeric_limits<double>::quiet_NaN()};
  Values values(static_cast<std::size_t>(2 * kSide * kSide), 0.0);
  std::size_t row = 0;
  for (const double end : ends) {
    const Values rest = testing::random_values(row, kSide, std::isfinite(end) ? 0.1 * end : 1.0);
    for (std::size_t i = 0; i < 5; ++i) values[row * kSide + 7 * i] = rest[i];
    values[row * kSide + row] = end;
    row += 5;
  }
  check(values, 2 * kSide, kSide, ScaledBlocks::kRows);
  // Tiles, with one end in each.
  for (const double end : ends) {
    Values tile(static_cast<std::size_t>(kSide * kSide), 0.0);
    tile[3 * kSide + 77] = end;
    tile[100 * kSide + 5] = std::isfinite(end) ? end / 3 : 1.0;
    check(tile, kSide, kSide, ScaledBlocks::kTiles);
  }
}

TEST_F(BlockScaledTest, OperandsAreChecked) {
  const Tensor x = testing::make_zeros(ctx, {kSide, 2 * kSide}, DType::kBF16);
  const BlockScaled straight = matrix(kSide, 2 * kSide, ScaledBlocks::kRows);
  EXPECT_THROW(ops::scale_blocks(ctx, x, BlockScaled(), straight), InternalError);
  EXPECT_THROW(ops::scale_blocks(ctx, x, straight, matrix(2 * kSide, kSide, ScaledBlocks::kTiles)),
               InternalError);
  EXPECT_THROW(ops::scale_blocks(ctx, testing::make_zeros(ctx, {kSide, 2 * kSide}, DType::kF32),
                                 straight, BlockScaled()),
               InternalError);
  EXPECT_THROW(ops::allocate_scaled(ctx, 100, kSide, ScaledBlocks::kRows), InternalError);
  ops::scale_blocks(ctx, x, straight, BlockScaled());
}

}  // namespace
}  // namespace trireme
