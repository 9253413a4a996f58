// The arithmetic of trireme bench, and its operations and collectives at tiny sizes on one rank.
#include <set>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/bus_factor.h"
#include "trireme/study/bench.h"
#include "trireme/study/product_times.h"

#include "support/message_of.h"

namespace trireme::bench {
namespace {

TEST(Bench, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kExchange, 4), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 1), 0.0);
}

TEST(Bench, ReadsSizes) {
  EXPECT_EQ(read_bytes("4", "--from"), 4);
  EXPECT_EQ(read_bytes("512", "--from"), 512);
  EXPECT_EQ(read_bytes("1K", "--from"), 1024);
  EXPECT_EQ(read_bytes("16M", "--from"), 16 << 20);
  EXPECT_EQ(read_bytes("1024G", "--from"), std::int64_t{1} << 40);
  for (const char* text : {"1536K", "1536k", "1536KiB", "1536 KB", "1.5M"}) {
    EXPECT_EQ(read_bytes(text, "--from"), 3 << 19) << text;
  }
  for (const char* wrong :
       {"", "K", "3", "0", "-4K", "1XB", "1.5", "1025G", "99999999999999999999"}) {
    EXPECT_THROW(read_bytes(wrong, "--from"), ConfigError) << wrong;
  }
  // bad input: `bench comm`: a size that is none; more from than to | --from 1XB: expected bytes,
  // at least 4 and at most 1024G, as in 512, 64K or 16M | 2
  EXPECT_EQ(testing::message_of([] { read_bytes("many", "--to"); }),
            "--to many: expected bytes, at least 4 and at most 1024G, as in 512, 64K or 16M");
}

TEST(Bench, SizesGrowByFour) {
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(sizes_between(1024, 16384), (Sizes{1024, 4096, 16384}));
  EXPECT_EQ(sizes_between(1024, 16383), (Sizes{1024, 4096}));
  EXPECT_EQ(sizes_between(4, 4), (Sizes{4}));
  EXPECT_EQ(sizes_between(1024, 1 << 20, 32), (Sizes{1024, 32768, 1 << 20}));
}

TEST(Bench, MedianIsTheMiddle) {
  EXPECT_DOUBLE_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_DOUBLE_EQ(median({4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_DOUBLE_EQ(median({7.0}), 7.0);
}

TEST(ProductTimes, TheFirstProposalStaysUnlessAnotherIsClearlyFaster) {
  EXPECT_EQ(fastest(std::vector{3.0}), 0u);
  EXPECT_EQ(fastest(std::vector{3.0, 2.98, 4.0}), 0u);
  EXPECT_EQ(fastest(std::vector{3.0, 2.98, 2.9, 2.0, 2.5}), 3u);
  EXPECT_EQ(fastest(std::vector<double>{}), 0u);
  const ProductTimes times{.product = {.m = 8, .n = 8, .k = 8},
                           .calls = 3,
                           .algorithms = {{{1}}, {{2}}},
                           .seconds = {2.0, 1.0}};
  const ops::ProductChoice choice = times.choice();
  EXPECT_EQ(choice.algorithm.attributes[0], 2u);
  EXPECT_EQ(choice.seconds, 1.0);
  EXPECT_EQ(choice.first, 2.0);
}

TEST(Bench, TheFloorIsTheHigherOfTwo) {
  const Roof roof{.flops = 100.0, .bandwidth = 10.0};
  EXPECT_DOUBLE_EQ(roof.floor(400.0, 10.0), 4.0);  // arithmetic
  EXPECT_DOUBLE_EQ(roof.floor(400.0, 80.0), 8.0);  // memory
  EXPECT_DOUBLE_EQ(roof.floor(0.0, 80.0), 8.0);
}

std::vector<OpRow> rows_of(const char* preset, DType dtype, const char* only = "") {
  ops::Context ctx = ops::make_cpu_context(1);
  OpsOptions options;
  options.model = models::resolve({.keys = {{"preset", preset}}}, {});
  options.batch = 2;
  options.dtype = dtype;
  options.only = only;
  options.repeats = 1;
  std::vector<OpRow> rows;
  measure_ops(ctx, options, [&](const OpRow& row) { rows.push_back(row); });
  return rows;
}

std::set<std::string> names_of(const std::vector<OpRow>& rows) {
  std::set<std::string> names;
  for (const OpRow& row : rows) names.insert(row.op);
  return names;
}

TEST(Bench, MeasuresTheOperationsThatTheModelHas) {
  const auto gpt = names_of(rows_of("test-gpt", DType::kF32));
  const auto llama = names_of(rows_of("test-llama", DType::kBF16));
  for (const char* name : {"query_key_value",
                           "attention",
                           "attention_backward",
                           "attention_output_dw",
                           "feed_forward_up_dx",
                           "feed_forward_down",
                           "add",
                           "embedding",
                           "embedding_backward",
                           "head",
                           "softmax_statistics",
                           "softmax_gradient",
                           "softmax_and_gradient",
                           "softmax_loss_sum",
                           "dropout",
                           "add_bias",
                           "add_column_sums",
                           "cast",
                           "fill",
                           "add_sum_of_squares",
                           "adamw_step"}) {
    EXPECT_TRUE(gpt.contains(name)) << name;
    EXPECT_TRUE(llama.contains(name)) << name;
  }
  for (const char* name : {"layer_norm", "add_layer_norm", "layer_norm_dw", "layer_norm_backward",
                           "gelu", "gelu_backward", "linear_gelu", "linear_gelu_dx"}) {
    EXPECT_TRUE(gpt.contains(name)) << name;
    EXPECT_FALSE(llama.contains(name)) << name;
  }
  for (const char* name : {"rms_norm", "add_rms_norm", "rms_norm_dx", "rms_norm_backward", "swiglu",
                           "swiglu_backward", "rotary"}) {
    EXPECT_TRUE(llama.contains(name)) << name;
    EXPECT_FALSE(gpt.contains(name)) << name;
  }
}

// Masks leave out pairs, and so arithmetic: a causal sample of n has n (n + 1) / 2 of them.
TEST(Bench, MeasuresAttentionWithinDocuments) {
  const std::vector<OpRow> rows = rows_of("test-gpt", DType::kF32, "attention_backward");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].shape, rows[0].shape + ", 4 documents");
  const auto pairs = [](double n) { return n * (n + 1) / 2; };
  const double length = 16;
  EXPECT_DOUBLE_EQ(rows[1].flops / rows[0].flops, 4 * pairs(length / 4) / pairs(length));
}

TEST(Bench, MeasuresPositionsWhereTheyAreLearned) {
  const std::set<std::string> both{"add_positions", "add_positions_backward"};
  EXPECT_EQ(names_of(rows_of("test-gpt", DType::kBF16, "positions")), both);
  EXPECT_TRUE(rows_of("test-llama", DType::kBF16, "positions").empty());
}

TEST(Bench, CountsArithmeticAndBytes) {
  // 2 sequences of 16 rows, width 32, hidden 128.
  const std::vector<OpRow> rows = rows_of("test-gpt", DType::kF32, "feed_forward_up");
  ASSERT_EQ(rows.size(), 3u);
  for (const OpRow& row : rows) {
    EXPECT_EQ(row.shape, "32 x 32 x 128");
    EXPECT_DOUBLE_EQ(row.flops, 2.0 * 32 * 32 * 128);
    EXPECT_GT(row.seconds, 0.0);
  }
  EXPECT_DOUBLE_EQ(rows[0].bytes, 4.0 * (32 * 32 + 32 * 128 + 32 * 128));
  EXPECT_DOUBLE_EQ(rows[2].bytes, 4.0 * (32 * 128 + 32 * 32 + 2 * 32 * 128));  // adds to dw
  const std::vector<OpRow> half = rows_of("test-gpt", DType::kBF16, "gelu_backward");
  ASSERT_EQ(half.size(), 1u);
  EXPECT_DOUBLE_EQ(half[0].bytes, 2.0 * 3 * 32 * 128);
  EXPECT_DOUBLE_EQ(half[0].flops, 0.0);
}

}  // namespace
}  // namespace trireme::bench
