#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "trireme/ops/quantize.h"

#include "support/ops_testing.h"

namespace trireme {
namespace {

using ops::Packing;
using testing::Values;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kBits[] = {16, 8, 4, 2};

// What the header says, element by element.
class Plain {
 public:
  Plain(const Packing& packing, const Floats& x, const Floats& kept)
      : packed(static_cast<std::size_t>(packing.bytes()), '\0'), error(kept), values(x.size()) {
    const auto n = static_cast<std::int64_t>(x.size()), per_part = packing.blocks_of_part();
    for (std::int64_t first = 0; first < n; first += 256) {
      const std::int64_t part = first / 256 / per_part, block = first / 256 % per_part;
      char* at = packed.data() + part * packing.part_bytes();
      char* scale = at + packing.scales_at() + block * 2;
      at += block * packing.block_bytes();
      const std::int64_t count = std::min<std::int64_t>(256, n - first);
      packing.bits == 16 ? round(x, first, count, at)
                         : quantize(packing.bits, x, first, count, at, scale);
    }
  }

  std::string packed;
  Floats error, values;

 private:
  void round(const Floats& x, std::int64_t first, std::int64_t count, char* codes) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      const float v = x[at] + error[at];
      const BFloat16 code(v);
      std::memcpy(codes + 2 * i, &code.bits, 2);
      values[at] = static_cast<float>(code);
      if (std::isfinite(values[at])) error[at] = v - values[at];
    }
  }
  void quantize(int bits, const Floats& x, std::int64_t first, std::int64_t count, char* codes,
                char* scale_at) {
    float largest = 0.0f;
    bool finite = true;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      const float v = x[at] + error[at];
      finite = finite && std::abs(v) <= 0x1p127f;
      if (std::abs(v) > std::abs(largest) || v == std::abs(largest)) largest = v;
    }
    const float scale = finite ? scale_of(bits, largest) : kNan;
    const BFloat16 stored(scale);
    std::memcpy(scale_at, &stored.bits, 2);
    const int top = (1 << (bits - 1)) - 1, bytes = 32 * bits;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      const float v = x[at] + error[at];
      int code = 0;
      if (finite && scale != 0.0f) {
        const float inverse = 1.0f / scale, exact = v * inverse;
        code = std::min(static_cast<int>(std::nearbyintf(exact)), top);
      }
      const int shift = static_cast<int>(i) / bytes * bits;
      codes[i % bytes] = static_cast<char>(codes[i % bytes] | (code & ((1 << bits) - 1)) << shift);
      values[at] = static_cast<float>(code) * scale;
      if (finite) error[at] = v - values[at];
    }
  }
  // Away from zero to eight bits of fraction.
  static float scale_of(int bits, float largest) {
    if (largest == 0.0f) return 0.0f;
    int exponent = 0;
    const double fraction = std::frexp(std::ldexp(std::abs(largest), 1 - bits), &exponent);
    const double scale = std::ldexp(std::ceil(fraction * 256), exponent - 8);
    return std::copysign(std::max(static_cast<float>(scale), 0x1p-126f), -largest);
  }
};

Values widened(const Floats& x) {
  return {x.begin(), x.end()};
}

Floats random_floats(std::uint64_t seed, std::int64_t n, double scale) {
  const Values values = testing::random_values(seed, n, scale);
  return {values.begin(), values.end()};
}

std::string bytes_of(const Floats& x) {
  std::string bytes(x.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return bytes;
}

// Codes of fp32 alone.
class Quantize : public testing::OpsTest {
 protected:
  struct Result {
    std::string packed;
    Floats error, values;
  };
  Tensor fp32(const Floats& x) {
    return testing::make_tensor(ctx, widened(x), {static_cast<std::int64_t>(x.size())},
                                DType::kF32);
  }
  static Floats floats(const Tensor& x) {
    const Values values = testing::values_of(x);
    return {values.begin(), values.end()};
  }
  Result quantized(const Packing& packing, const Floats& x, const Floats& error) {
    const Tensor kept = error.empty() ? Tensor() : fp32(error), y = fp32(Floats(x.size(), kNan));
    const Tensor packed = ctx.allocate({packing.bytes()}, DType::kU8);
    testing::upload(ctx, std::string(packed.bytes(), '\x5a').data(), packed);
    ops::quantize(ctx, packing, fp32(x), kept, packed);
    ops::dequantize(ctx, packing, packed, y);
    return {testing::bits_of(packed), kept.defined() ? floats(kept) : Floats(), floats(y)};
  }
  void expect_plain(const Packing& packing, const Floats& x, const Floats& error) {
    const std::string what = std::to_string(packing.bits) + " bits, " +
                             std::to_string(packing.elements) + " in " +
                             std::to_string(packing.parts);
    const Plain plain(packing, x, error);
    const Result result = quantized(packing, x, error);
    EXPECT_EQ(result.packed, plain.packed) << what;
    EXPECT_EQ(bytes_of(result.error), bytes_of(plain.error)) << what;
    EXPECT_EQ(bytes_of(result.values), bytes_of(plain.values)) << what;
    // Nothing is lost that is not kept.
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(static_cast<double>(result.values[i]) + static_cast<double>(result.error[i]),
                static_cast<double>(x[i] + error[i]))
          << what;
    }
    EXPECT_EQ(quantized(packing, x, Floats(x.size(), 0.0f)).packed,
              quantized(packing, x, {}).packed)
        << what;
  }
};

TEST_P(Quantize, GivesTheBitsOfAPlainLoop) {
  for (const int bits : kBits) {
    for (const std::int64_t n : {1, 5, 255, 256, 257, 1000, 3000}) {
      for (const int parts : {1, 3}) {
        expect_plain({.bits = bits, .elements = n, .parts = parts}, random_floats(1, n, 1.0),
                     random_floats(2, n, 0.3));
      }
    }
  }
}

// One kind of block each.
TEST_P(Quantize, TakesBlocksOfAllKinds) {
  Floats outlier(256, 0.0f), equal(256, 1.0f), halves(256);
  outlier[77] = -3.0f;
  for (std::size_t i = 0; i < 128; ++i) equal[i] = -1.0f;
  for (std::size_t i = 0; i < 256; ++i) halves[i] = 0.5f * static_cast<float>(i) - 64.0f;
  Floats negated = halves;
  for (float& value : negated) value = -value;
  Floats both_zeros(256, 0.0f);
  for (std::size_t i = 0; i < 256; i += 2) both_zeros[i] = -0.0f;
  const Floats kinds[] = {Floats(256, 0.0f),
                          both_zeros,
                          Floats(256, -0.0f),
                          outlier,
                          equal,
                          halves,
                          negated,
                          random_floats(3, 256, 0x1p-140),
                          random_floats(4, 256, 0x1p-124),
                          random_floats(5, 256, 0x1p124),
                          Floats(256, 0x1p127f),
                          Floats(256, -0x1p127f),
                          random_floats(6, 100, 1e-6)};
  for (const int bits : kBits) {
    Floats all;
    for (const Floats& kind : kinds) all.insert(all.end(), kind.begin(), kind.end());
    const auto n = static_cast<std::int64_t>(all.size());
    expect_plain({.bits = bits, .elements = n}, all, Floats(all.size(), 0.0f));
    expect_plain({.bits = bits, .elements = n, .parts = 20}, all, Floats(all.size(), 0.0f));
  }
}

TEST_P(Quantize, KeepsLittleAndNoMoreThanThereWas) {
  const Floats x = random_floats(7, 256, 1.0);
  float largest = 0.0f;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  for (const int bits : {8, 4, 2}) {
    const Floats error = quantized({.bits = bits, .elements = 256}, x, Floats(256, 0.0f)).error;
    const float scale = largest / static_cast<float>(1 << (bits - 1));
    double kept = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_LE(std::abs(error[i]), std::abs(x[i]));
      EXPECT_LE(std::abs(error[i]), 1.01f * scale);
      kept += static_cast<double>(error[i]) * static_cast<double>(error[i]);
      squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    // A share of the whole; the levels -1, 0 and 1 of 2 bits would leave 0.58.
    EXPECT_LE(kept / squares, bits == 8 ? 1e-4 : bits == 4 ? 0.015 : 0.3) << bits;
  }
}

// The whole block is not finite then, and only that block. What was kept before stays.
TEST_P(Quantize, NotFiniteIsNotHidden) {
  const Floats error = random_floats(9, 600, 0.1);
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity, 0x1.8p127f}) {
    Floats x = random_floats(8, 600, 1.0);
    x[300] = bad;
    for (const int bits : {8, 4, 2}) {
      const Packing packing = {.bits = bits, .elements = 600, .parts = 2};
      const Result result = quantized(packing, x, error);
      const Plain plain(packing, x, error);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool inside = 256 <= i && i < 512;
        EXPECT_EQ(std::isnan(result.values[i]), inside) << i;
        EXPECT_EQ(result.error[i], inside ? error[i] : plain.error[i]);
      }
    }
    const Result result = quantized({.bits = 16, .elements = 600}, x, error);
    EXPECT_EQ(std::isfinite(result.values[300]), bad == 0x1.8p127f);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(std::isfinite(result.error[i]));
      EXPECT_TRUE(i == 300 || std::isfinite(result.values[i]));
    }
  }
  // bf16 makes it infinite, and x plus error is.
  Floats x(3, std::numeric_limits<float>::max());
  const Floats half(3, 0x1p126f);
  for (const int bits : kBits) {
    for (const Floats& kept : {Floats(3, 0.0f), half}) {
      const Result result = quantized({.bits = bits, .elements = 3}, x, kept);
      EXPECT_FALSE(std::isfinite(result.values[1])) << bits;
      EXPECT_EQ(result.error, kept) << bits;
    }
  }
}

// The mean of what was sent tends to what there was: it differs by what is kept, over the number.
TEST_P(Quantize, ErrorFeedbackSendsAllInTheEnd) {
  constexpr int kTimes = 50;
  const Floats x = random_floats(10, 400, 1.0);
  for (const int bits : kBits) {
    const Packing packing = {.bits = bits, .elements = 400};
    Floats error(x.size(), 0.0f);
    Values sum(x.size(), 0.0);
    for (int i = 0; i < kTimes; ++i) {
      const Result result = quantized(packing, x, error);
      error = result.error;
      for (std::size_t j = 0; j < x.size(); ++j) sum[j] += static_cast<double>(result.values[j]);
    }
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double difference = sum[j] / kTimes - static_cast<double>(x[j]);
      EXPECT_NEAR(difference, -static_cast<double>(error[j]) / kTimes, 1e-6);
      EXPECT_LE(std::abs(error[j]), 4.0f);  // at most the largest x
    }
  }
}

TEST_P(Quantize, TakesViewsThatAreNotAligned) {
  const Floats x = random_floats(11, 513, 1.0);
  for (const int bits : kBits) {
    const Packing packing = {.bits = bits, .elements = 512};
    const Tensor whole = fp32(x), error = testing::make_zeros(ctx, {513}, DType::kF32);
    const Tensor packed = ctx.allocate({packing.bytes()}, DType::kU8);
    ops::quantize(ctx, packing, whole.flat_range(1, 513), error.flat_range(1, 513), packed);
    const Plain plain(packing, Floats(x.begin() + 1, x.end()), Floats(512, 0.0f));
    EXPECT_EQ(testing::bits_of(packed), plain.packed);
    ops::dequantize(ctx, packing, packed, whole.flat_range(1, 513));
    EXPECT_EQ(testing::bits_of(whole).substr(4), bytes_of(plain.values));
  }
}

TEST_P(Quantize, PartsAreOfEqualSize) {
  const Packing packing = {.bits = 2, .elements = 1300, .parts = 4};
  EXPECT_EQ(packing.blocks_of_part(), 2);
  EXPECT_EQ(packing.part_bytes(), 2 * 64 + 8);
  EXPECT_EQ(packing.part().bytes(), packing.part_bytes());
  EXPECT_EQ((Packing{.bits = 16, .elements = 1, .parts = 3}).bytes(), 3 * 512);
  EXPECT_EQ((Packing{.bits = 8, .elements = 0, .parts = 3}).bytes(), 0);
}

TEST_P(Quantize, RefusesOtherArguments) {
  const Tensor x = fp32(Floats(10, 1.0f));
  const Packing packing = {.bits = 8, .elements = 10};
  const Tensor packed = ctx.allocate({packing.bytes()}, DType::kU8);
  const auto refuses = [](const auto& call) { EXPECT_THROW(call(), InternalError); };
  refuses([&] { ops::quantize(ctx, {.bits = 3, .elements = 10}, x, {}, packed); });
  refuses([&] { ops::quantize(ctx, {.bits = 8, .elements = 11}, x, {}, packed); });
  refuses([&] { ops::quantize(ctx, packing, x, x.flat_range(0, 9), packed); });
  refuses([&] { ops::quantize(ctx, packing, x, {}, packed.flat_range(0, 8)); });
  refuses([&] { ops::dequantize(ctx, packing, packed, x.flat_range(0, 9)); });
  refuses([&] { ops::dequantize(ctx, packing, x, x); });
}

INSTANTIATE_TEST_SUITE_P(Fp32, Quantize, ::testing::Values(DType::kF32));

}  // namespace
}  // namespace trireme
