// What the plans of all families say of their models' costs, compared with formulas by hand.
#include "models/plan_costs.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/comm/dry_rank.h"
#include "trireme/models/family.h"
#include "trireme/nn/fields.h"
#include "trireme/parallel/stage.h"

#include "models/bert/bert.h"
#include "models/mobilenet_v2/mobilenet_v2.h"
#include "models/resnet/resnet.h"
#include "models/vit/vit.h"
#include "support/small_model.h"

namespace trireme::testing {
namespace {

std::vector<double> flops_of(const nn::ModelPlan& plan) {
  std::vector<double> flops;
  for (const nn::BlockPlan& block : plan.blocks) flops.push_back(block.flops);
  return flops;
}

// FLOPs of the products of one transformer layer whose key heads have `kv_width` channels, and
// whose MLP has `matrices` matrices of hidden x width; attention multiplies two vectors for each of
// `pairs` of positions, twice.
double layer_flops(const models::TransformerSizes& s, std::int64_t kv_width, int matrices,
                   std::int64_t pairs) {
  const std::int64_t attention = s.width * (2 * s.width + 2 * kv_width);
  const std::int64_t mlp = matrices * s.width * s.hidden;
  return static_cast<double>(2 * s.length * (attention + mlp) + 2 * 2 * pairs * s.width);
}

void expect_total(const nn::ModelPlan& plan) {
  const std::vector<double> flops = flops_of(plan);
  EXPECT_EQ(plan.flops_per_sample, 3 * std::accumulate(flops.begin(), flops.end(), 0.0));
}

// Causal attention of T positions has T (T + 1) / 2 pairs. The vocabulary counts without padding.
TEST(PlanCosts, FlopsOfDecodersAreThoseOfTheFormula) {
  const models::GptConfig gpt = small_gpt(), llama = small_llama();
  const std::int64_t length = gpt.context, pairs = length * (length + 1) / 2;
  const double head = 2.0 * 64 * 300 * 64;
  const double of_gpt = layer_flops(transformer_sizes(gpt), 64, 2, pairs);
  EXPECT_EQ(flops_of(models::gpt_plan(gpt)),
            (std::vector<double>{0, of_gpt, of_gpt, of_gpt, of_gpt, head}));
  const double of_llama = layer_flops(transformer_sizes(llama), 32, 3, pairs);
  EXPECT_EQ(flops_of(models::gpt_plan(llama)),
            (std::vector<double>{0, of_llama, of_llama, of_llama, of_llama, head}));
  expect_total(models::gpt_plan(gpt));
}

TEST(PlanCosts, FlopsOfEncodersAreThoseOfTheFormula) {
  const models::BertConfig bert{
      .layers = 2, .width = 16, .heads = 2, .hidden = 24, .vocabulary = 13, .context = 20};
  const double of_bert = layer_flops(transformer_sizes(bert), 16, 2, 20 * 20);
  const double bert_head = 3 * 2 * 16.0 * (16 + 13);  // 15 % of 20 positions have a target
  EXPECT_EQ(flops_of(models::bert_plan(bert)),
            (std::vector<double>{0, of_bert, of_bert, bert_head}));
  const models::VitConfig vit{
      .layers = 1, .width = 32, .heads = 4, .hidden = 48, .patch = 2, .image = 8, .classes = 7};
  const double patches = 2.0 * 16 * (2 * 2 * 3) * 32;
  EXPECT_EQ(flops_of(models::vit_plan(vit)),
            (std::vector<double>{patches, layer_flops(transformer_sizes(vit), 32, 2, 17 * 17),
                                 2.0 * 32 * 7}));
  expect_total(models::vit_plan(vit));
}

// FLOPs of a convolution that makes side x side pixels; `in`: channels of a group of its input.
double convolution(int side, int kernel, int in, int out) {
  return 2.0 * side * side * kernel * kernel * in * out;
}

TEST(PlanCosts, FlopsOfConvolutionalNetworksAreThoseOfTheFormula) {
  models::MobileNetV2Config mobilenet;
  mobilenet.image = 32;  // with the published stem: 16 pixels after it
  mobilenet.classes = 7;
  mobilenet.stages = {{1, 16, 1, 1}, {6, 24, 1, 2}};
  EXPECT_EQ(flops_of(models::mobilenet_v2_plan(mobilenet)),
            (std::vector<double>{
                convolution(16, 3, 3, 32), convolution(16, 3, 1, 32) + convolution(16, 1, 32, 16),
                convolution(16, 1, 16, 96) + convolution(8, 3, 1, 96) + convolution(8, 1, 96, 24),
                convolution(8, 1, 24, 1280) + 2.0 * 1280 * 7}));
  models::ResNetConfig resnet;
  resnet.image = 32;  // 16 pixels after the stem's convolution, 8 after its pooling
  resnet.classes = 7;
  resnet.width = 8;
  resnet.stages = {1, 1};
  EXPECT_EQ(flops_of(models::resnet_plan(resnet)),
            (std::vector<double>{
                convolution(16, 7, 3, 8), 2 * convolution(8, 3, 8, 8),
                convolution(4, 3, 8, 16) + convolution(4, 3, 16, 16) + convolution(4, 1, 8, 16),
                2.0 * 16 * 7}));
  expect_total(models::resnet_plan(resnet));
}

// Bytes in fp32 are what each operation reads and writes.
TEST(PlanCosts, BytesAreThoseOfTheOperations) {
  const double rows = 64 * 64 * 4;  // of the stream
  const nn::ModelPlan gpt = models::gpt_plan(small_gpt());
  // Tokens and their rows of the table; positions, added in place.
  EXPECT_EQ(gpt.blocks[0].bytes, 64 * 4 + 2 * rows + 3 * rows);
  // The norm, with two statistics of each row; the product; the softmax's three.
  const double logits = 64 * 300 * 4, table = 300 * 64 * 4, of_rows = 64 * 4;
  EXPECT_EQ(gpt.blocks.back().bytes, 2 * rows + 2 * 64 * 4 + 2 * of_rows +  //
                                         rows + table + logits +            //
                                         logits + of_rows + 3 * of_rows +   //
                                         of_rows + 3 * of_rows + 8);
  // A convolution is one operation on every device; the norm reads its result twice.
  models::MobileNetV2Config mobilenet;
  mobilenet.image = 32;
  const double pixels = 16 * 16 * 32, channels = 32;
  EXPECT_EQ(models::mobilenet_v2_plan(mobilenet).blocks[0].bytes,
            4 * (32 * 32 * 3 + 27 * channels + pixels + pixels + 2 * channels + 2 * pixels));
}

// The plan of a preset counts one block of each kind; a stage builds all blocks.
TEST(PlanCosts, ParametersAreThoseOfTheBuiltModel) {
  ops::Context ctx = ops::make_dry_context(1);
  DryRank rank(DryRankOptions{});
  const ProcessGrid grid(rank, {});
  for (const models::Family* family : models::families()) {
    for (const std::string_view preset : family->presets()) {
      const nn::ModelPlan plan = family->resolve({{"preset", std::string(preset)}}, {}).plan;
      const parallel::Stage stage(ctx, grid, plan, {});
      std::int64_t elements = 0, states = 0;
      for (const nn::Parameter* parameter : stage.parameters()) {
        elements += parameter->placement().extent.elements();
      }
      for (const nn::BlockPlan& block : plan.blocks) states += block.states;
      EXPECT_EQ(plan.parameters, elements) << preset;
      EXPECT_EQ(states, stage.states().elements()) << preset;
    }
  }
}

// A kind is only a shorter way to the same numbers.
TEST(PlanCosts, BlocksOfAKindCostTheSame) {
  for (const models::GptConfig& model : {small_gpt(), small_llama()}) {
    const nn::ModelPlan plan = models::gpt_plan(model);
    nn::ModelPlan each = plan;
    for (nn::BlockPlan& block : each.blocks) block.kind.clear();
    models::count_costs(each, {{nn::kTokens, {model.context}, DType::kI32},
                               {nn::kTargets, {model.context}, DType::kI32}});
    EXPECT_EQ(each.parameters, plan.parameters);
    EXPECT_EQ(each.flops_per_sample, plan.flops_per_sample);
    for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
      EXPECT_EQ(each.blocks[i].flops, plan.blocks[i].flops);
      EXPECT_EQ(each.blocks[i].bytes, plan.blocks[i].bytes);
      EXPECT_EQ(each.blocks[i].parameters, plan.blocks[i].parameters);
      EXPECT_EQ(each.blocks[i].states, plan.blocks[i].states);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
