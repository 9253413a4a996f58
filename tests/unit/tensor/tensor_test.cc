#include "trireme/tensor/tensor.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "trireme/tensor/copy.h"

namespace trireme {
namespace {

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // half way: to even
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_TRUE(std::isinf(static_cast<float>(BFloat16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u)))));
}

// Every half, and every place where rounding to one may go either way.
TEST(E4M3, RoundsToNearestEven) {
  const auto value_of = [](unsigned bits) {
    E4M3 code;
    code.bits = static_cast<std::uint8_t>(bits);
    return static_cast<float>(code);
  };
  EXPECT_EQ(value_of(0x01), 0x1p-9f);
  EXPECT_EQ(value_of(0x08), 0x1p-6f);
  EXPECT_EQ(value_of(0x38), 1.0f);
  EXPECT_EQ(value_of(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(value_of(0x7f)) && std::isnan(value_of(0xff)));
  for (unsigned bits = 0; bits < 0x7f; ++bits) {
    for (const unsigned sign : {0u, 0x80u}) {
      const float value = value_of(bits | sign);
      ASSERT_EQ(E4M3(value).bits, bits | sign);
      // 480 would follow 448.
      const float next = bits == 0x7e ? std::copysign(480.0f, value) : value_of((bits + 1) | sign);
      const float middle = 0.5f * (value + next);  // exact
      ASSERT_EQ(E4M3(middle).bits, (bits % 2 == 0 ? bits : bits + 1) | sign) << bits;
      ASSERT_EQ(E4M3(std::nextafter(middle, value)).bits, bits | sign) << bits;
      ASSERT_EQ(E4M3(std::nextafter(middle, next)).bits, (bits + 1) | sign) << bits;
    }
  }
  EXPECT_EQ(E4M3(std::numeric_limits<float>::infinity()).bits, 0x7f);
  EXPECT_EQ(E4M3(std::numeric_limits<float>::quiet_NaN()).bits & 0x7f, 0x7f);
  EXPECT_EQ(E4M3(1e-30f).bits, 0);
}

TEST(Half, RoundsToNearestEven) {
  const auto value_of = [](unsigned bits) {  // from the definition
    const int exponent = static_cast<int>(bits >> 10 & 31u);
    const double fraction = static_cast<double>(bits & 1023u) / 1024.0;
    const double size =
        exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15);
    return bits & 0x8000u ? -size : size;
  };
  for (unsigned bits = 0; bits < 0x7c00u; ++bits) {
    for (const unsigned sign : {0u, 0x8000u}) {
      Half half;
      half.bits = static_cast<std::uint16_t>(bits | sign);
      const auto value = static_cast<float>(half);
      ASSERT_EQ(static_cast<double>(value), value_of(bits | sign)) << bits;
      ASSERT_EQ(Half(value).bits, bits | sign);
      // The next half is 2^16 where it would be infinite: that is where rounding to it begins.
      const auto next = static_cast<float>(bits == 0x7bffu ? (sign ? -65536.0 : 65536.0)
                                                           : value_of((bits + 1) | sign));
      const float middle = (value + next) / 2.0f;
      ASSERT_EQ(Half(middle).bits, (bits % 2 == 0 ? bits : bits + 1) | sign) << bits;
      ASSERT_EQ(Half(std::nextafter(middle, value)).bits, bits | sign) << bits;
      ASSERT_EQ(Half(std::nextafter(middle, next)).bits, (bits + 1) | sign) << bits;
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Half(kInfinity).bits, 0x7c00);
  EXPECT_EQ(Half(-kInfinity).bits, 0xfc00);
  EXPECT_EQ(Half(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(static_cast<float>(Half(-kInfinity)), -kInfinity);
  EXPECT_EQ(Half(-0.0f).bits, 0x8000);
  EXPECT_TRUE(std::signbit(static_cast<float>(Half(-0.0f))));
  EXPECT_EQ(Half(std::numeric_limits<float>::denorm_min()).bits, 0);
  for (const std::uint32_t nan : {0x7f800001u, 0xffc00000u, 0x7fffffffu}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(Half(std::bit_cast<float>(nan)))));
  }
}

TEST(Allocator, ReusesAndCounts) {
  const auto allocator = make_caching_allocator({});
  const Stream stream;
  const void* first = nullptr;
  {
    const Buffer block = allocator->allocate(1000, MemoryUse::kActivations, stream);
    first = block.get();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
    EXPECT_GE(allocator->stats().live[static_cast<std::size_t>(MemoryUse::kActivations)], 1000u);
  }
  EXPECT_EQ(allocator->stats().total_live, 0u);
  const Buffer again = allocator->allocate(990, MemoryUse::kGradients, stream);
  EXPECT_EQ(again.get(), first);
  EXPECT_LE(allocator->stats().reserved, 1024u);
}

TEST(Allocator, CountsMemoryOfAnotherOriginWhileItLives) {
  const auto allocator = make_caching_allocator(Device());
  bool freed = false;
  Buffer adopted = allocator->adopt(Buffer(new std::byte[500],
                                           [&freed](std::byte* memory) {
                                             delete[] memory;
                                             freed = true;
                                           }),
                                    500, MemoryUse::kGradients);
  const auto live = [&] {
    return allocator->stats().live[static_cast<std::size_t>(MemoryUse::kGradients)];
  };
  EXPECT_EQ(live(), 500u);
  EXPECT_EQ(allocator->stats().reserved, 500u);
  Tensor tensor = Tensor::over(adopted, Device(), {125}, DType::kF32);
  adopted = {};
  EXPECT_FALSE(freed);
  EXPECT_EQ(tensor.bytes(), 500u);
  tensor = {};
  EXPECT_TRUE(freed);
  EXPECT_EQ(live(), 0u);
  EXPECT_EQ(allocator->stats().reserved, 0u);
  EXPECT_EQ(allocator->stats().total_peak, 500u);
}

TEST(Allocator, SaysWhatHoldsTheMemory) {
  const auto allocator = make_caching_allocator({}, 8 << 20);
  const Buffer held = allocator->allocate(5 << 20, MemoryUse::kParameters, Stream());
  try {
    allocator->allocate(6 << 20, MemoryUse::kActivations, Stream());
    FAIL() << "the limit did not hold";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(std::string(error.what()),
              "out of memory on cpu: 6.0 MiB more were asked for, for activations; in use: "
              "parameters 5 MiB, gradients 0 MiB, optimizer 0 MiB, activations 0 MiB, workspace 0 "
              "MiB, communication 0 MiB; a smaller --batch.micro, --run.precision bf16, "
              "--recompute.mode full, or more --grid.tensor or --grid.pipeline would need less");
  }
}

// What comes and goes in a step: some blocks live on, some are freed and asked for again.
MemoryStats stats_of_a_run(Allocator& allocator, const Stream& stream) {
  allocator.reached({.name = "start"});
  const Buffer weights = allocator.allocate(1000001, MemoryUse::kParameters, stream);
  std::vector<Buffer> saved;
  for (int layer = 0; layer < 4; ++layer) {
    allocator.reached({.name = "forward", .number = layer});
    const Buffer scratch = allocator.allocate(70000, MemoryUse::kWorkspace, stream);
    saved.push_back(allocator.allocate(5000000 - 1000 * static_cast<std::size_t>(layer),
                                       MemoryUse::kActivations, stream));
  }
  while (!saved.empty()) {
    allocator.reached({.name = "backward", .number = std::ssize(saved) - 1});
    const Buffer scratch = allocator.allocate(69000, MemoryUse::kWorkspace, stream);
    saved.pop_back();
  }
  return allocator.stats();
}

TEST(DryAllocator, CountsAsTheRealOneDoes) {
  const auto real = make_caching_allocator({});
  const auto dry = make_dry_allocator();
  for (int round = 0; round < 2; ++round) {
    const MemoryStats expected = stats_of_a_run(*real, Stream());
    const MemoryStats counted = stats_of_a_run(*dry, dry_stream());
    EXPECT_EQ(counted.live, expected.live);
    EXPECT_EQ(counted.peak, expected.peak);
    EXPECT_EQ(counted.total_peak, expected.total_peak);
    EXPECT_EQ(counted.at_peak, expected.at_peak);
    EXPECT_EQ(counted.peak_point, (MemoryPoint{"forward", 3}));
    EXPECT_EQ(counted.peak_point, expected.peak_point);
    EXPECT_EQ(counted.reserved, expected.reserved);
  }
  const MemoryStats stats = dry->stats();
  std::size_t sum = 0;
  for (const std::size_t bytes : stats.at_peak) sum += bytes;
  EXPECT_EQ(sum, stats.total_peak);
}

TEST(DryAllocator, TakesNothingFromTheSystem) {
  const auto dry = make_dry_allocator();
  const Tensor one = Tensor::allocate(*dry, dry_stream(), {std::int64_t{1} << 45}, DType::kF32,
                                      MemoryUse::kParameters);
  const Tensor other = Tensor::allocate(*dry, dry_stream(), {std::int64_t{1} << 45}, DType::kF32,
                                        MemoryUse::kParameters);
  EXPECT_EQ(dry->stats().total_live, std::size_t{1} << 48);
  EXPECT_TRUE(is_dry(one.raw()));
  EXPECT_TRUE(is_dry(other.flat_range(100, 200).raw()));
  EXPECT_GE(static_cast<std::byte*>(other.raw()), static_cast<std::byte*>(one.raw()) + one.bytes());
  EXPECT_THROW(one.span<float>(), InternalError);
  int on_the_stack = 0;
  EXPECT_FALSE(is_dry(&on_the_stack));
  EXPECT_FALSE(is_dry(nullptr));
}

TEST(DryAllocator, GivesTheHostRealMemory) {
  const auto dry = make_dry_allocator();
  const auto host = [&] {
    return Tensor::allocate(*dry, Stream(), {100}, DType::kI32, MemoryUse::kActivations);
  };
  // A freed dry block of the same size class does not become the host's.
  Tensor::allocate(*dry, dry_stream(), {100}, DType::kI32, MemoryUse::kActivations);
  const Tensor tokens = host();
  ASSERT_FALSE(is_dry(tokens.raw()));
  for (std::int32_t& token : tokens.span<std::int32_t>()) {
    EXPECT_EQ(token, 0);
    token = 7;
  }
  const Tensor device =
      Tensor::allocate(*dry, dry_stream(), {100}, DType::kI32, MemoryUse::kActivations);
  ASSERT_TRUE(is_dry(device.raw()));
  copy(tokens, device, dry_stream());
  EXPECT_EQ(tokens.span<std::int32_t>()[99], 7);
  copy(device, tokens, dry_stream());
  EXPECT_EQ(tokens.span<std::int32_t>()[99], 0);
}

TEST(Tensor, ViewsShareMemory) {
  const auto allocator = make_caching_allocator({});
  Tensor view;
  {
    const Tensor whole =
        Tensor::allocate(*allocator, Stream(), {4, 6}, DType::kF32, MemoryUse::kActivations);
    for (int i = 0; i < 24; ++i) whole.data<float>()[i] = static_cast<float>(i);
    view = whole.rows(1, 3);
  }
  EXPECT_EQ(view.shape(), (Shape{2, 6}));
  EXPECT_EQ(view.data<float>()[0], 6.0f);
  EXPECT_EQ(view.flat_range(3, 5).data<float>()[1], 10.0f);
  EXPECT_EQ(view.reshape({3, 4}).rows(2, 3).data<float>()[3], 17.0f);
  EXPECT_THROW(view.reshape({5}), InternalError);
  EXPECT_THROW(view.rows(1, 3), InternalError);
  EXPECT_THROW(view.data<double>(), InternalError);
}

}  // namespace
}  // namespace trireme
