// What operations take on a device: closed forms, limits, and what measured ones decide.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/plan/device_description.h"

namespace trireme::plan {
namespace {

using Kind = ProgramEntry::Kind;

ProgramEntry product(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = DType::kBF16,
                     std::int64_t batch = 1) {
  const auto x = [](std::int64_t size) { return static_cast<double>(size); };
  return {.dtype = dtype,
          .sizes = {m, n, k, batch},
          .flops = 2.0 * x(m) * x(n) * x(k) * x(batch),
          .bytes = static_cast<double>(size_of(dtype)) * x(batch) *
                   (x(m) * x(k) + x(k) * x(n) + x(m) * x(n))};
}

ProgramEntry moves(double bytes, DType dtype = DType::kBF16) {
  return {.dtype = dtype, .sizes = {static_cast<std::int64_t>(bytes / 2048), 1024}, .bytes = bytes};
}

double roofline(const DeviceDescription& device, const ProgramEntry& entry) {
  return std::max(entry.flops / device.peak.at(entry.dtype), entry.bytes / device.memory_rate);
}

DeviceDescription processor() {
  DeviceDescription device;
  device.name = "host";
  device.gpu = false;
  device.threads = 2;
  device.memory = 1e10;
  device.memory_rate = 1e10;
  device.peak = {{DType::kF32, 2e11}};
  device.vector_peak = 1e11;
  device.constants = {.product = 1.0, .memory = 1.0, .attention = 1.0, .start = 1e-6};
  return device;
}

TEST(DeviceCosts, AHugeProductTakesItsFlopsAtThePeakUnderLoad) {
  for (const DeviceDescription& device : known_devices()) {
    const DeviceCosts costs(device);
    const DType type = device.peak.contains(DType::kBF16) ? DType::kBF16 : DType::kF16;
    // So many tiles that the last wave of them is nothing.
    const ProgramEntry entry = product(65536, 65536, 16384, type);
    const double least = entry.flops / (device.peak.at(type) * device.constants.product);
    EXPECT_GE(costs.seconds(entry, "matmul"), least) << device.name;
    EXPECT_LT(costs.seconds(entry, "matmul"), 1.015 * least) << device.name;
  }
}

TEST(DeviceCosts, WavesOfTilesAreWhole) {
  DeviceDescription device = known_device("h100");
  device.constants.start = 0.0;
  const DeviceCosts costs(device);
  // Two tiles of 256 x 128 for each multiprocessor, then more.
  const std::int64_t columns = 128 * device.multiprocessors;
  const double two = costs.seconds(product(512, columns, 8192), "matmul");
  const double more = costs.seconds(product(512, columns + 128, 8192), "matmul");
  EXPECT_NEAR(two,
              2.0 * 512 * static_cast<double>(columns) * (8192 + 64) /
                  (device.peak.at(DType::kBF16) * device.constants.product),
              1e-9 * two);
  EXPECT_GT(more, 1.1 * two);
}

TEST(DeviceCosts, WhatTheMemoryBoundsTakesItsBytesAndAStart) {
  for (const DeviceDescription& device : known_devices()) {
    const double expected =
        device.constants.start + 1e9 / (device.memory_rate * device.constants.memory);
    EXPECT_DOUBLE_EQ(DeviceCosts(device).seconds(moves(1e9), "add"), expected) << device.name;
  }
}

TEST(DeviceCosts, CopiesGoAtTheRateOfTheirWay) {
  const DeviceDescription& device = known_device("a100-80");
  const DeviceCosts costs(device);
  const auto copy = [&](std::string_view name) {
    return costs.seconds({.kind = Kind::kCopy, .bytes = 1e9}, name) - device.constants.start;
  };
  const double rate = device.memory_rate * device.constants.memory;
  EXPECT_NEAR(copy("to the device"), 1e9 / device.host_rate, 1e-12);
  EXPECT_NEAR(copy("to the host"), 1e9 / device.host_rate, 1e-12);
  EXPECT_NEAR(copy("on the device"), 2e9 / rate, 1e-12);
  EXPECT_NEAR(copy("fill"), 1e9 / rate, 1e-12);
}

TEST(DeviceCosts, TheH200TakesWhatItsOperationsWereMeasuredToTake) {
  const DeviceCosts costs(known_device("h200"));
  // perf/RESULTS.md, on an H200.
  const ProgramEntry cube = product(8192, 8192, 8192);
  EXPECT_NEAR(cube.flops / costs.seconds(cube, "matmul") * 1e-12, 803, 25);
  const double pairs = 1024.0 * 1025 / 2;
  ProgramEntry attention{.dtype = DType::kBF16,
                         .sizes = {64 * 12, 1024, 1024, 64},
                         .flops = 4 * pairs * 64 * 12 * 64,
                         .bytes = 4.0 * 65536 * 768 * 2};
  EXPECT_NEAR(attention.flops / costs.seconds(attention, "attention") * 1e-12, 314, 16);
  attention.flops *= 2.5;
  attention.bytes *= 2;
  EXPECT_NEAR(attention.flops / costs.seconds(attention, "attention_backward") * 1e-12, 223, 12);
  // perf/raw/h200.json: milliseconds of kernels, by the bytes that they are counted for.
  const double tokens = 65536.0 * 768 * 2;
  EXPECT_NEAR(costs.seconds(moves(2 * tokens), "layer_norm"), 0.060e-3, 0.005e-3);
  EXPECT_NEAR(costs.seconds(moves(4 * tokens), "layer_norm_backward"), 0.161e-3, 0.008e-3);
  EXPECT_NEAR(costs.seconds(moves(8 * tokens), "gelu"), 0.199e-3, 0.010e-3);
  EXPECT_NEAR(costs.seconds(moves(2 * tokens), "embedding_backward"), 0.242e-3, 0.012e-3);
}

TEST(DeviceCosts, NothingIsFasterThanTheRoofline) {
  const std::vector<std::string> names = {
      "matmul", "convolution", "convolution_backward_input", "convolution_backward_weight", "add",
      "gelu",   "rotary"};
  std::mt19937 random(7);
  std::uniform_int_distribution<int> power(0, 13);
  const auto size = [&] { return (std::int64_t{1} << power(random)) + power(random); };
  for (const DeviceDescription& device : known_devices()) {
    const DeviceCosts costs(device);
    for (int i = 0; i < 300; ++i) {
      const DType type = i % 2 == 0 ? DType::kF32 : DType::kF16;
      const ProgramEntry entry = product(size(), size(), size(), type);
      for (const std::string& name : names) {
        const bool works = name.starts_with("matmul") || name.starts_with("convolution");
        ProgramEntry one = entry;
        if (!works) one.flops = 0;
        ASSERT_GE(costs.seconds(one, name), roofline(device, one)) << device.name << " " << name;
      }
      ProgramEntry attention = entry;  // any of its pairs
      attention.flops = 4.0 * static_cast<double>(entry.sizes[0] * entry.sizes[1]) * 64;
      attention.sizes = {entry.sizes[0], entry.sizes[1], entry.sizes[1], 64};
      for (const char* name : {"attention", "attention_backward"}) {
        ASSERT_GE(costs.seconds(attention, name), roofline(device, attention)) << device.name;
      }
    }
  }
}

TEST(DeviceCosts, MoreWorkIsNeverFaster) {
  std::mt19937 random(11);
  std::uniform_int_distribution<std::int64_t> any(1, 3000);
  for (const char* name : {"h100", "t4"}) {
    const DeviceCosts costs(known_device(name));
    for (int i = 0; i < 2000; ++i) {
      const std::int64_t m = any(random), n = any(random), k = any(random), more = any(random) / 8;
      const double least = costs.seconds(product(m, n, k, DType::kF16), "matmul");
      ASSERT_LE(least, costs.seconds(product(m + more, n, k, DType::kF16), "matmul"));
      ASSERT_LE(least, costs.seconds(product(m, n + more, k, DType::kF16), "matmul"));
      ASSERT_LE(least, costs.seconds(product(m, n, k + more, DType::kF16), "matmul"))
          << m << " " << n << " " << k << " + " << more;
      ASSERT_LE(costs.seconds(moves(1e4 * static_cast<double>(m)), "layer_norm"),
                costs.seconds(moves(1e4 * static_cast<double>(m + more)), "layer_norm"));
    }
  }
}

TEST(DeviceCosts, AFasterMemoryOrPeakIsNeverSlower) {
  const DeviceDescription& device = known_device("a100-40");
  DeviceDescription memory = device, peak = device;
  memory.memory_rate *= 1.3;
  peak.peak[DType::kBF16] *= 1.3;
  const DeviceCosts plain(device), with_memory(memory), with_peak(peak);
  for (std::int64_t side = 16; side <= 8192; side *= 2) {
    const ProgramEntry entry = product(side, 512, side);
    EXPECT_LE(with_memory.seconds(entry, "matmul"), plain.seconds(entry, "matmul"));
    EXPECT_LE(with_peak.seconds(entry, "matmul"), plain.seconds(entry, "matmul"));
    const ProgramEntry moved = moves(static_cast<double>(side * side));
    EXPECT_LT(with_memory.seconds(moved, "add"), plain.seconds(moved, "add"));
  }
}

TEST(DeviceCosts, FewRowsAndFewColumnsOfOperandsAreSlow) {
  const DeviceCosts costs(known_device("h100"));
  const auto rate = [&](const ProgramEntry& entry) {
    return entry.flops / costs.seconds(entry, "matmul");
  };
  EXPECT_LT(rate(product(64, 4096, 4096)), 0.5 * rate(product(4096, 4096, 4096)));
  EXPECT_LT(rate(product(8192, 8192, 64)), 0.6 * rate(product(8192, 8192, 8192)));
  // The gradient of weights: few tiles, but many columns, which multiprocessors share.
  EXPECT_GT(rate(product(768, 768, 65536)), 0.5 * rate(product(8192, 8192, 8192)));
}

TEST(DeviceCosts, ATypeWithoutAPeakIsRefused) {
  try {
    DeviceCosts(known_device("t4")).seconds(product(8, 8, 8), "matmul");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "device t4 has no peak for products of bf16; it has fp32, fp16");
  }
}

TEST(DeviceCosts, AProcessorHasNoTiles) {
  const DeviceCosts costs(processor());
  EXPECT_DOUBLE_EQ(costs.seconds(product(1000, 1000, 1000, DType::kF32), "matmul"), 1e-6 + 0.01);
  EXPECT_DOUBLE_EQ(costs.seconds(moves(1e8, DType::kF32), "layer_norm"), 1e-6 + 0.01);
}

MeasuredOperation measured(const std::string& name, const ProgramEntry& entry, double seconds) {
  return {name, entry.dtype, entry.sizes, entry.flops, entry.bytes, seconds};
}

TEST(MeasuredCosts, HitWhatWasMeasured) {
  DeviceDescription device = processor();
  std::vector<ProgramEntry> entries;
  for (std::int64_t side = 16; side <= 1024; side *= 2) {
    for (std::int64_t inner : {32, 256}) entries.push_back(product(side, side, inner, DType::kF32));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    device.operations.push_back(
        measured("matmul", entries[i], 1e-6 * static_cast<double>(3 + i * i)));
  }
  const DeviceCosts costs(device);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(costs.seconds(entries[i], "matmul"), 1e-6 * static_cast<double>(3 + i * i));
  }
}

TEST(MeasuredCosts, LieBetweenNeighbours) {
  DeviceDescription device = processor();
  // In a cache, and beyond: 1 and 4 times what the model says.
  const ProgramEntry small = moves(1e6, DType::kF32), large = moves(64e6, DType::kF32);
  const double model_small = DeviceCosts(device).seconds(small, "add");
  const double model_large = DeviceCosts(device).seconds(large, "add");
  device.operations = {measured("add", small, model_small),
                       measured("add", large, 4 * model_large)};
  const DeviceCosts costs(device);
  double before = model_small;
  for (double bytes = 1.1e6; bytes < 64e6; bytes *= 1.1) {
    ProgramEntry entry = moves(bytes, DType::kF32);
    const double seconds = costs.seconds(entry, "add");
    EXPECT_GT(seconds, before) << bytes;
    EXPECT_LT(seconds, 4 * model_large) << bytes;
    before = seconds;
  }
  // Beyond, at the last rate.
  const ProgramEntry beyond = moves(640e6, DType::kF32);
  EXPECT_NEAR(costs.seconds(beyond, "add"), 40 * model_large, 0.3 * 40 * model_large);
  // Others are not touched.
  EXPECT_EQ(costs.seconds(small, "gelu"), DeviceCosts(processor()).seconds(small, "gelu"));
}

TEST(MeasuredCosts, HaveNoJumps) {
  DeviceDescription device = processor();
  std::mt19937 random(3);
  std::uniform_int_distribution<std::int64_t> any(16, 2048);
  for (int i = 0; i < 40; ++i) {
    const ProgramEntry entry = product(any(random), any(random), any(random), DType::kF32);
    const double model = DeviceCosts(processor()).seconds(entry, "matmul");
    device.operations.push_back(measured("matmul", entry, (1 + i % 5) * model));
  }
  const DeviceCosts costs(device);
  double before = 0.0;
  for (std::int64_t m = 512; m < 1024; ++m) {
    const double ratio = costs.seconds(product(m, 700, 300, DType::kF32), "matmul");
    if (before > 0) {
      EXPECT_NEAR(ratio / before, 1.0, 0.05) << m;
    }
    before = ratio;
  }
}

}  // namespace
}  // namespace trireme::plan
