// The fields of a micro-batch, from the host to where blocks compute.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/nn/host_micro_batch.h"

namespace trireme::testing {
namespace {

std::vector<std::string> names_of(const nn::Fields& fields) {
  std::vector<std::string> names;
  for (const nn::Field& field : fields) names.push_back(field.name);
  return names;
}

TEST(Fields, HaveANameEachAndKeepTheirOrder) {
  ops::Context ctx = ops::make_cpu_context(1);
  nn::Fields fields;
  EXPECT_FALSE(fields.find(nn::kTokens).defined());
  fields.set(nn::kTokens, ctx.allocate({2}, DType::kI32));
  fields.set("weather", ctx.allocate({3}, DType::kF32));
  fields.set(nn::kTokens, ctx.allocate({4}, DType::kI32));
  EXPECT_EQ(names_of(fields), (std::vector<std::string>{"tokens", "weather"}));
  EXPECT_EQ(fields.find(nn::kTokens).elements(), 4);
  EXPECT_EQ(fields.find("weather").elements(), 3);
  EXPECT_FALSE(fields.find(nn::kTargets).defined());
}

TEST(Fields, AllReachTheDevice) {
  ops::Context ctx = ops::make_cpu_context(1);
  nn::HostMicroBatch host(ctx, 2, 1);
  std::ranges::fill(host.samples.span<std::int64_t>(), 7);
  host.add(ctx, nn::kPixels, {2, 3, 3, 3}, DType::kF32).span<float>()[53] = 0.5f;
  host.add(ctx, "weather", {2}, DType::kI32).span<std::int32_t>()[1] = 11;
  const nn::MicroBatch made = host.to_device(ctx, 2, true);
  EXPECT_EQ(made.batch, 2);
  EXPECT_EQ(made.length, 1);
  EXPECT_EQ(made.target_count, 2);
  EXPECT_TRUE(made.training);
  EXPECT_EQ(made.samples.span<std::int64_t>()[1], 7);
  EXPECT_EQ(names_of(made.fields), (std::vector<std::string>{"pixels", "weather"}));
  EXPECT_EQ(made.field(nn::kPixels).shape(), (Shape{2, 3, 3, 3}));
  EXPECT_EQ(made.field(nn::kPixels).span<float>()[53], 0.5f);
  EXPECT_EQ(made.field("weather").span<std::int32_t>()[1], 11);
  EXPECT_FALSE(made.field(nn::kTokens).defined());
  EXPECT_EQ(made.loss_sum.span<double>()[0], 0.0);
}

}  // namespace
}  // namespace trireme::testing
