// A step taken apart: sums, gaps, names, floors, and what is said where kernels cannot be traced.
#include "trireme/study/step_parts.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/matmul.h"
#include "trireme/study/bench.h"

namespace trireme::bench {
namespace {

using cuda::DeviceWork;
using cuda::KernelRecords;

const char* const kMangledNorm =
    "_ZN7trireme3ops3gpu12_GLOBAL__N_117layer_norm_kernelIfLi256EEEvPKT_PS4_i";

DeviceWork kernel(const char* name, std::int64_t begin, std::int64_t end) {
  return {.name = name, .kernel = true, .begin_ns = begin, .end_ns = end};
}

const StepPart* find(const StepParts& parts, const std::string& name) {
  for (const StepPart& part : parts.parts) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

TEST(KernelNames, AreShort) {
  EXPECT_EQ(short_kernel_name(kMangledNorm), "layer_norm_kernel<float, 256>");
  EXPECT_EQ(short_kernel_name("_ZN7trireme4cuda7publishEPlPKl"), "publish");
  EXPECT_EQ(short_kernel_name("_ZN7cutlass7Kernel2I10Tensor_opsEEvNT_6ParamsE"),
            "Kernel2<Tensor_ops>");
  EXPECT_EQ(short_kernel_name("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"),
            "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT");  // no C++ name
  EXPECT_EQ(short_kernel_name(""), "");
  // A class that is a template keeps the arguments that tell its kernels apart.
  EXPECT_EQ(short_kernel_name("_ZN1aI5floatE3runIiEEvT_"), "a<float>::run<int>");
}

TEST(KernelSum, AddsUpStepsAndSortsByTime) {
  KernelSum sum;
  sum.add({.work = {kernel("short", 0, 1000), kernel("long", 1000, 9000),
                    kernel("short", 9000, 12000)}},
          15e-6);
  sum.add({.work = {kernel("short", 0, 2000), kernel("long", 2000, 6000)}, .lost = 3}, 25e-6);
  const StepParts parts = sum.mean();
  ASSERT_EQ(parts.parts.size(), 2u);
  EXPECT_EQ(parts.parts[0].name, "long");
  EXPECT_DOUBLE_EQ(parts.parts[0].calls, 1.0);
  EXPECT_DOUBLE_EQ(parts.parts[0].seconds, 6e-6);
  EXPECT_EQ(parts.parts[1].name, "short");
  EXPECT_DOUBLE_EQ(parts.parts[1].calls, 1.5);
  EXPECT_DOUBLE_EQ(parts.parts[1].seconds, 3e-6);
  EXPECT_DOUBLE_EQ(parts.step, 20e-6);
  EXPECT_DOUBLE_EQ(parts.sum(), 9e-6);
  EXPECT_EQ(parts.lost, 3u);
}

TEST(KernelSum, GapsAreWhereNoKernelRuns) {
  const auto gaps = [](std::vector<DeviceWork> work) {
    KernelSum sum;
    sum.add({.work = std::move(work)}, 1.0);
    return sum.mean().gaps.value_or(-1.0);
  };
  EXPECT_DOUBLE_EQ(gaps({}), 0.0);
  EXPECT_DOUBLE_EQ(gaps({kernel("a", 100, 200)}), 0.0);
  // In no order, on two streams, one within another.
  EXPECT_DOUBLE_EQ(gaps({kernel("c", 700, 800), kernel("a", 0, 500), kernel("b", 100, 200)}),
                   200e-9);
  EXPECT_DOUBLE_EQ(gaps({kernel("a", 0, 100), kernel("b", 100, 200)}), 0.0);
  // A copy is no kernel: a stream that waits for it has a gap.
  EXPECT_DOUBLE_EQ(gaps({kernel("a", 0, 100),
                         {.name = "copy to device", .begin_ns = 100, .end_ns = 300},
                         kernel("b", 300, 400)}),
                   200e-9);
}

TEST(KernelSum, KernelsShareWhatTheirOperationComputes) {
  const std::vector<ops::OperationTimes::Key> operations = {{"matmul", DType::kF32, {}, 4e9, 8e6},
                                                            {"norm", DType::kF32, {}, 0.0, 4e6}};
  const auto of = [](DeviceWork work, std::uint64_t operation) {
    work.operation = operation;
    return work;
  };
  KernelSum sum;
  sum.add({.work = {of(kernel("product", 0, 3000), 1), of(kernel("sum", 3000, 4000), 1),
                    of(kernel("norm", 5000, 6000), 2), of(kernel("norm", 7000, 8000), 2),
                    of(kernel("ahead", 8000, 9000), 3), kernel("none", 9000, 9500)}},
          1.0, operations);
  const StepParts parts = sum.mean();
  const auto expect = [&](const char* name, double flops, double bytes) {
    const StepPart* const part = find(parts, name);
    ASSERT_NE(part, nullptr) << name;
    EXPECT_DOUBLE_EQ(part->flops, flops) << name;
    EXPECT_DOUBLE_EQ(part->bytes, bytes) << name;
  };
  expect("product", 3e9, 6e6);
  expect("sum", 1e9, 2e6);
  expect("norm", 0.0, 4e6);
  expect("ahead", 0.0, 0.0);
  expect("none", 0.0, 0.0);
}

TEST(KernelSum, KernelsOfDifferentWholeNamesStayApart) {
  KernelSum sum;
  sum.add({.work = {kernel("_ZN1a3runEi", 0, 10), kernel("_ZN1b3runEi", 10, 30)}}, 1.0);
  const StepParts parts = sum.mean();
  ASSERT_EQ(parts.parts.size(), 2u);
  EXPECT_EQ(parts.parts[0].name, "run");
  EXPECT_EQ(parts.parts[1].name, "run");
  EXPECT_DOUBLE_EQ(parts.parts[0].seconds, 20e-9);
}

TEST(OperationTimes, MarksCallsInsteadOfTimingThem) {
  ops::Context ctx = ops::make_cpu_context(1);
  const Tensor a = ctx.allocate({4, 8}, DType::kF32), b = ctx.allocate({16, 8}, DType::kF32);
  const Tensor c = ctx.allocate({4, 16}, DType::kF32);
  std::vector<std::uint64_t> marks;
  ctx.times =
      std::make_shared<ops::OperationTimes>([&](std::uint64_t number) { marks.push_back(number); });
  ops::fill(ctx, a, 1.0f);
  ops::matmul(ctx, a, ops::Transpose::kNo, b, ops::Transpose::kYes, 0.0f, c);
  EXPECT_EQ(marks, (std::vector<std::uint64_t>{1, 0, 2, 0}));
  EXPECT_TRUE(ctx.times->calls().empty());
  ASSERT_EQ(ctx.times->marked().size(), 2u);
  EXPECT_EQ(std::get<0>(ctx.times->marked()[1]), "matmul");
  EXPECT_DOUBLE_EQ(std::get<3>(ctx.times->marked()[1]), 2.0 * 4 * 16 * 8);
}

TEST(OperationParts, AreMeansByTypeAndSizes) {
  ops::Context ctx = ops::make_cpu_context(1);
  const Tensor a = ctx.allocate({4, 8}, DType::kF32), b = ctx.allocate({16, 8}, DType::kF32);
  const Tensor c = ctx.allocate({4, 16}, DType::kF32);
  const auto times = std::make_shared<ops::OperationTimes>();
  ops::fill(ctx, a, 1.0f);
  ops::fill(ctx, b, 1.0f);
  ctx.times = times;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 3; ++i) {
      ops::matmul(ctx, a, ops::Transpose::kNo, b, ops::Transpose::kYes, 0.0f, c);
    }
    ops::fill(ctx, a, 1.0f);
  }
  const StepParts parts = operation_parts(*times, 2, 0.5);
  EXPECT_EQ(parts.parts.size(), 2u);
  const StepPart* const product = find(parts, "matmul fp32 4 x 16 x 8 x 1");
  ASSERT_NE(product, nullptr) << parts.parts[0].name << ", " << parts.parts[1].name;
  EXPECT_DOUBLE_EQ(product->calls, 3.0);
  EXPECT_DOUBLE_EQ(product->flops, 3.0 * 2 * 4 * 16 * 8);
  EXPECT_DOUBLE_EQ(product->bytes, 3.0 * 4 * (4 * 8 + 16 * 8 + 4 * 16));
  double seconds = 0.0;
  for (const auto& [key, calls] : times->calls()) {
    for (const double one : calls) seconds += one;
  }
  EXPECT_DOUBLE_EQ(parts.sum(), seconds / 2);
  EXPECT_DOUBLE_EQ(parts.step, 0.5);
  EXPECT_FALSE(parts.gaps.has_value());
}

// A trace that is told what to say.
struct ScriptedTrace : cuda::KernelTrace {
  std::vector<KernelRecords>* left;
  explicit ScriptedTrace(std::vector<KernelRecords>& records) : left(&records) {}
  KernelRecords take() override {
    if (left->empty()) throw CudaError("cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN");
    KernelRecords next = std::move(left->front());
    left->erase(left->begin());
    return next;
  }
  void begin_operation(std::uint64_t) override {}
  void end_operation() override {}
};

// What was asked of the steps, and what came of it.
struct Traced {
  KernelParts result;
  int steps = 0;
};

Traced trace(const OpenTrace& open, int steps = 2) {
  Traced traced;
  traced.result = kernel_parts(open, steps, [&](const auto& begin, const auto&) {
    begin();
    return 0.001 * ++traced.steps;
  });
  return traced;
}

TEST(KernelParts, CountNeitherTheWarmUpNorWhatCameBefore) {
  const KernelRecords other{.work = {kernel("other", 0, 500)}, .lost = 7};
  const KernelRecords step{.work = {kernel("mine", 0, 1000)}};
  // Two takes for each step, but for the warm-up, whose records the next beginning drops.
  std::vector<KernelRecords> script{other, other, step, other, step};
  const Traced traced = trace([&] { return std::make_unique<ScriptedTrace>(script); });
  EXPECT_EQ(traced.steps, 3);
  EXPECT_EQ(traced.result.why_not, "");
  ASSERT_TRUE(traced.result.parts.has_value());
  ASSERT_EQ(traced.result.parts->parts.size(), 1u);
  EXPECT_EQ(traced.result.parts->parts[0].name, "mine");
  EXPECT_DOUBLE_EQ(traced.result.parts->parts[0].calls, 1.0);
  EXPECT_DOUBLE_EQ(traced.result.parts->step, 0.0025);
  EXPECT_EQ(traced.result.parts->lost, 0u);
}

TEST(KernelParts, AllStepsAreRunWhateverBecomesOfTheTrace) {
  // bad input: `bench step --kernels` on a GPU where CUPTI is missing, of another version, or held
  // by another tool | kernels are not traced, operations are timed alone: ... | 0
  const Traced refused = trace([]() -> std::unique_ptr<cuda::KernelTrace> {
    throw CudaError("CUPTI is held by another tool, which traces this program");
  });
  EXPECT_EQ(refused.steps, 3);
  EXPECT_FALSE(refused.result.parts.has_value());
  EXPECT_EQ(refused.result.why_not, "CUPTI is held by another tool, which traces this program");

  const KernelRecords step{.work = {kernel("mine", 0, 1000)}};
  std::vector<KernelRecords> script{step, step, step};  // the fourth call fails
  const Traced broken = trace([&] { return std::make_unique<ScriptedTrace>(script); });
  EXPECT_EQ(broken.steps, 3);
  EXPECT_FALSE(broken.result.parts.has_value());
  EXPECT_EQ(broken.result.why_not, "cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN");
}

TEST(KernelParts, ATraceWithoutRecordsIsNone) {
  std::vector<KernelRecords> script(5);
  const Traced traced = trace([&] { return std::make_unique<ScriptedTrace>(script); });
  EXPECT_FALSE(traced.result.parts.has_value());
  EXPECT_EQ(traced.result.why_not, "CUPTI recorded no kernel");
}

const Roof kRoof{.flops = 1e12, .bandwidth = 1e11};

StepParts some_parts() {
  return {.parts = {{.name = "matmul", .calls = 2.0, .seconds = 8e-3, .flops = 4e9, .bytes = 1e6},
                    {.name = "add", .calls = 3.0, .seconds = 1e-3, .bytes = 5e7}},
          .step = 10e-3};
}

TEST(PartsTable, HasFloorsSharesAndTheSumBesideTheStep) {
  const std::vector<std::string> expected = {
      "operation" + std::string(47, ' ') +
          "   calls         ms     GFLOP        MB   floor ms  roof %  step %",
      "matmul" + std::string(50, ' ') +
          "       2      8.000     4.000     1.000      4.000    50.0    80.0",
      "add" + std::string(53, ' ') +
          "       3      1.000         -    50.000      0.500    50.0    10.0",
      "sum" + std::string(53, ' ') +
          "       5      9.000     4.000    51.000      4.500    50.0    90.0",
      "the step" + std::string(48, ' ') +
          "             10.000                                             100.0"};
  EXPECT_EQ(parts_table("operation", some_parts(), kRoof), expected);
}

TEST(PartsTable, AFloorThatIsNotKnownIsNotSummed) {
  StepParts parts = some_parts();
  parts.parts[0].flops = parts.parts[0].bytes = 0.0;
  parts.gaps = 0.5e-3;
  parts.lost = 12;
  const auto lines = parts_table("kernel", parts, kRoof);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_TRUE(lines[1].ends_with("      8.000         -         -          -       -    80.0"))
      << lines[1];
  EXPECT_TRUE(lines[3].ends_with("      9.000         -    50.000          -       -    90.0"))
      << lines[3];
  EXPECT_EQ(lines[4], "gaps in which no kernel ran" + std::string(29, ' ') +
                          "              0.500                                               5.0");
  EXPECT_EQ(lines[6], "12 records of kernels were lost: the table lacks them");
}

TEST(PartsTable, LongTablesAndNamesAreCut) {
  StepParts parts;
  for (int i = 0; i < 50; ++i) {
    parts.parts.push_back({.name = std::string(40, 'a') + std::string(40, 'z'),
                           .calls = 1.0,
                           .seconds = 1e-3,
                           .bytes = 1e6});
  }
  parts.step = 0.1;
  const auto lines = parts_table("kernel", parts, kRoof);
  ASSERT_EQ(lines.size(), 44u);  // head, 40, others, sum, the step
  EXPECT_EQ(lines[1].substr(0, 58), std::string(32, 'a') + "..." + std::string(21, 'z') + "  ");
  EXPECT_EQ(lines[1].size(), lines[0].size());
  EXPECT_TRUE(lines[41].starts_with("10 others  ")) << lines[41];
  EXPECT_NE(lines[41].find("      10     10.000"), std::string::npos) << lines[41];
  EXPECT_NE(lines[42].find("      50     50.000"), std::string::npos) << lines[42];
}

cuda::HealthReport sample(unsigned clock, double power, bool hot = false) {
  cuda::GpuHealth other, mine;
  other.pci_bus_id = "0000:01:00.0";
  other.clock = 1;
  mine.pci_bus_id = "0000:19:00.0";
  mine.clock = clock;
  mine.max_clock = 1980;
  mine.power = power;
  mine.slowed_by_heat = hot;
  return {.why_not = "", .driver = "580.65.06", .gpus = {other, mine}};
}

TEST(GpuState, IsTheMedianOfItsSamples) {
  const GpuState state = gpu_state(
      {sample(1980, 200.0), sample(1700, 650.0, true), sample(1755, 640.0)}, "0000:19:00.0");
  EXPECT_EQ(state.clock, 1755.0);
  EXPECT_EQ(state.power, 640.0);
  EXPECT_EQ(gpu_state_text(state), "GPU: 1755 of 1980 MHz, 640 W, slowed by heat");
}

TEST(GpuState, SaysWhyNothingIsKnown) {
  EXPECT_EQ(gpu_state_text(gpu_state({sample(1980, 200.0)}, "0000:ff:00.0")),
            "GPU: clocks and power are not known: NVML tells nothing of the GPU at 0000:ff:00.0");
  cuda::HealthReport absent;
  absent.why_not = "libnvidia-ml.so.1: not here";
  EXPECT_EQ(gpu_state_text(gpu_state({absent}, "0000:19:00.0")),
            "GPU: clocks and power are not known: libnvidia-ml.so.1: not here");
}

TEST(StepJson, HasTheParts) {
  StepTimes times;
  times.step = 10e-3;
  times.unit = {"token", "tokens"};
  const auto json = [&] { return Json::parse(step_json(times, kRoof, GridShape(2, 1, 1))); };
  for (const char* key : {"operations", "kernels", "why_no_kernels", "gpu"}) {
    EXPECT_EQ(json().find(key), nullptr) << key;
  }
  times.operations = some_parts();
  times.kernels.parts = some_parts();
  times.kernels.parts->gaps = 0.5e-3;
  const Json all = json();
  const Json& row = all.at("operations").at("rows").at(0);
  EXPECT_EQ(row.at("name").text(), "matmul");
  // Half of the roof is a rank's.
  EXPECT_DOUBLE_EQ(row.at("floor_seconds").number(), 8e-3);
  EXPECT_DOUBLE_EQ(all.at("kernels").at("gap_seconds").number(), 0.5e-3);
  EXPECT_DOUBLE_EQ(all.at("kernels").at("sum_seconds").number(), 9e-3);
  times.kernels = {.parts = {}, .why_not = "no CUPTI"};
  EXPECT_EQ(json().at("why_no_kernels").text(), "no CUPTI");
}

}  // namespace
}  // namespace trireme::bench
