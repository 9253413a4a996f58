// The table of versions that change bits: in order, and the same on the page for users.
#include "trireme/ops/arithmetic.h"

#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/small_file.h"

namespace trireme {
namespace {

TEST(Arithmetic, EachChangeHasTheNextNumberAndALineOnThePage) {
  const std::string page = read_small_file("the page", TRIREME_PAGE);
  int number = 1;
  for (const ops::ArithmeticChange& change : ops::arithmetic_changes()) {
    EXPECT_EQ(change.number, ++number);
    const std::string row = fmt::format("\n| {} | {} |\n", change.number, change.what);
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
  EXPECT_EQ(ops::arithmetic_now(), number);
}

TEST(Arithmetic, OnlyWhatTouchesAContextHasChanged) {
  setenv("TRIREME_MATMUL", "own", 1);
  const ops::Context own = ops::make_cpu_context(1);
  setenv("TRIREME_MATMUL", "onednn", 1);
  const ops::Context by_shape = ops::make_cpu_context(1);
  unsetenv("TRIREME_MATMUL");
  const ops::Arithmetic fp32{.compute = DType::kF32, .classes = 65536};
  const ops::Arithmetic fp16{.compute = DType::kF16};
  const ops::Arithmetic large{.classes = 65600};
  EXPECT_EQ(ops::arithmetic_since(1, own, fp32), "");
  EXPECT_NE(ops::arithmetic_since(1, by_shape, fp32), "");
  EXPECT_NE(ops::arithmetic_since(1, by_shape, fp16), "");
  EXPECT_EQ(ops::arithmetic_since(ops::arithmetic_now(), by_shape, large), "");
  EXPECT_NE(ops::arithmetic_since(2, own, large), "");
  EXPECT_EQ(ops::arithmetic_since(2, by_shape, fp32), "");
  EXPECT_EQ(ops::arithmetic_since(3, own, large), "");
  ops::Context gpu = ops::make_cpu_context(1);
  gpu.gpu_memory = std::int64_t{80} << 30;
  EXPECT_NE(ops::arithmetic_since(3, gpu, fp32), "");
  EXPECT_EQ(ops::arithmetic_since(3, gpu, fp16), "");  // no such loss
  const ops::Context on_gpu = ops::make_dry_cuda_context(std::int64_t{1} << 30);
  EXPECT_NE(ops::arithmetic_since(4, on_gpu, fp32), "");
  const ops::Arithmetic norms{.batch_norms = true};
  const auto tells_of_norms = [&](const ops::Context& ctx, const ops::Arithmetic& model) {
    return ops::arithmetic_since(5, ctx, model).starts_with("batch norms");
  };
  EXPECT_TRUE(tells_of_norms(on_gpu, norms));
  EXPECT_FALSE(tells_of_norms(on_gpu, fp32));
  EXPECT_EQ(ops::arithmetic_since(5, own, norms), "");
  EXPECT_NE(ops::arithmetic_since(6, on_gpu, fp32), "");
  EXPECT_EQ(ops::arithmetic_since(6, own, fp32), "");
  EXPECT_NE(ops::arithmetic_since(7, on_gpu, norms), ops::arithmetic_since(8, on_gpu, norms));
  EXPECT_EQ(ops::arithmetic_since(7, on_gpu, fp32), ops::arithmetic_since(8, on_gpu, fp32));
  EXPECT_NE(ops::arithmetic_since(8, on_gpu, fp32), "");
  EXPECT_EQ(ops::arithmetic_since(7, own, norms), "");
}

}  // namespace
}  // namespace trireme
