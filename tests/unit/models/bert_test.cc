// The family bert: its sizes and the published ones, its keys, its initial values, its head and its
// gradients. What it computes is compared with Hugging Face's model by bert_torch_test, and grids
// with one rank by bert_grids_test.
#include "models/bert/bert.h"

#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/dry_rank.h"
#include "trireme/nn/block_run.h"
#include "trireme/parallel/trainer_step.h"

#include "models/bert/transformers_names.h"
#include "support/message_of.h"
#include "support/ops_testing.h"
#include "support/slopes.h"
#include "support/small_bert.h"

namespace trireme::testing {
namespace {

using models::BertConfig;

models::ModelRequest request(const OptionValues& keys) {
  return {"bert", keys};
}

BertConfig tiny() {
  return {.layers = 2,
          .width = 16,
          .heads = 2,
          .hidden = 24,
          .vocabulary = 13,
          .context = 9,
          .norm_epsilon = 1e-5};
}

// Parameters as transformers counts those of BertForMaskedLM of these sizes.
struct Published {
  const char* preset;
  std::int64_t parameters;
};
constexpr Published kPublished[] = {{"bert-tiny", 4'416'698},
                                    {"bert-small", 28'795'194},
                                    {"bert-base", 109'514'298},
                                    {"bert-large", 335'174'458}};

TEST(Bert, HasThePublishedSizes) {
  for (const Published& published : kPublished) {
    const nn::ModelPlan plan = models::bert_plan(models::bert_preset(published.preset));
    EXPECT_EQ(plan.parameters, published.parameters) << published.preset;
    EXPECT_EQ(plan.length, 512);
  }
  const nn::ModelPlan base = models::bert_plan(models::bert_preset("bert-base"));
  EXPECT_EQ(base.blocks.size(), 14u);
  // For each token 2 FLOPs for a weight of the blocks and 4 T C for a layer's attention; the head
  // for 76 of the 512 tokens.
  const double blocks = 12 * 512.0 * (2 * 12 * 768.0 * 768 + 4 * 512.0 * 768);
  const double head = 76 * 2 * 768.0 * (768 + 30522);
  EXPECT_NEAR(base.flops_per_sample / 3 / (blocks + head), 1.0, 1e-9);
  EXPECT_NEAR(base.blocks.back().flops / head, 1.0, 1e-9);
}

TEST(Bert, KeysFollowFromThePresetAndTheData) {
  const auto resolved = [](const OptionValues& keys, const models::DataFacts& data = {}) {
    return models::resolve(request(keys), data).request.keys;
  };
  EXPECT_EQ(resolved({}).at("width"), "768");
  EXPECT_EQ(resolved({}).at("vocabulary"), "30522");
  EXPECT_EQ(resolved({}).at("norm_epsilon"), "1e-12");
  EXPECT_EQ(resolved({}, {.vocabulary = 305}).at("vocabulary"), "305");
  EXPECT_EQ(resolved({{"width", "96"}, {"heads", "3"}}).at("hidden"), "384");
  const OptionValues tiny_keys =
      resolved({{"preset", "bert-tiny"}, {"context", "64"}}, {.vocabulary = 300});
  EXPECT_EQ(models::sample_shape(request({{"preset", "bert-tiny"}, {"context", "64"}})),
            (Shape{64}));
  const models::Model model = models::resolve(request(tiny_keys), {});
  EXPECT_EQ(model.request.keys, tiny_keys);
  EXPECT_EQ(model.plan.description,
            "BERT, 2 layers, width 128, 2 heads, 64 positions, tied embeddings");
  EXPECT_EQ(model.attention, (ops::AttentionShape{1, 64, 2, 2, 64, false}));
  EXPECT_EQ(model.data.vocabulary, 300);
  EXPECT_EQ(models::find_family("bert").task(), "masked_language_model");
  EXPECT_EQ(models::summary(request({{"preset", "bert-base"}, {"context", "128"}})),
            "bert-base, 128 tokens of context");
}

TEST(Bert, RefusesKeysThatCannotBe) {
  EXPECT_EQ(message_of([] {
              models::find_family("bert").check_keys({{"heads", "5"}, {"width", "12"}});
            }),
            "model.heads (5) does not divide model.width (12): one of 1, 2, 3, 4, 6, 12 would");
  EXPECT_EQ(message_of([] {
              models::resolve(request({{"preset", "bert-tiny"}, {"heads", "3"}}), {});
            }),
            "model.heads (3) does not divide model.width (128): one of 1, 2, 4, 8, 16, 32, 64, "
            "128 would");
  // bad input: `train`: a preset of `bert` that does not exist | model.preset 'bert-huge' is
  // unknown; there are bert-tiny, bert-small, bert-base, bert-large | 2
  EXPECT_EQ(message_of([] {
              models::sample_shape(request({{"preset", "bert-huge"}}));
            }),
            "model.preset 'bert-huge' is unknown; there are bert-tiny, bert-small, bert-base, "
            "bert-large");
  EXPECT_EQ(message_of([] {
              models::resolve(request({{"vocabulary", "300"}}), {.vocabulary = 305});
            }),
            "model.vocabulary is 300, but the data has 305 tokens: leave it out, and it follows "
            "the data");
  const models::Model model = models::resolve(request({{"preset", "bert-tiny"}}), {});
  EXPECT_EQ(message_of([&] {
              model.check_grid({1, 1, 4});
            }),
            "2 heads cannot be split over 4 tensor ranks: grid.tensor must divide model.heads");
  EXPECT_EQ(message_of([&] { model.check_grid({2, 4, 2}); }), "no error");
}

class BertAlone : public ::testing::Test {
 protected:
  nn::MicroBatch make(const BertConfig& model, bool training) {
    return make_masked_texts(ctx_, model, 0, kSamples, training);
  }
  double loss(parallel::TrainerStep& step) {
    const nn::MicroBatch batch = make(tiny(), false);
    return parallel::evaluate(step.executor(), 1, [&](int) { return batch; }).loss_sum;
  }
  // Larger weights than a fresh model's, so that every gradient stands out from rounding.
  static void shake(const parallel::Stage& stage) {
    for (const nn::FlatGroup* group : stage.groups()) {
      const Values shift = random_values(3, group->master().elements());
      const auto values = group->master().span<float>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 4.0f * values[i] + 0.1f * static_cast<float>(shift[i]);
      }
    }
  }
  static constexpr std::int64_t kSamples = 5;
  ops::Context ctx_ = ops::make_cpu_context(1);
  DryRank rank_{{}};
  ProcessGrid grid_{rank_, {1, 1, 1}};
};

TEST_F(BertAlone, ParametersAreThoseOfThePlanWithTheirInitialValues) {
  BertConfig model = models::bert_preset("bert-tiny");
  model.vocabulary = 1000;
  model.context = 64;
  const nn::ModelPlan plan = models::bert_plan(model);
  const parallel::Stage stage(ctx_, grid_, plan, {.trains = false});
  std::int64_t elements = 0;
  for (const nn::Parameter* parameter : stage.parameters()) {
    const std::string& name = parameter->name();
    const std::int64_t count = parameter->placement().global.elements();
    elements += count;
    const bool drawn = name.ends_with("weight") && name.find("norm") == std::string::npos;
    EXPECT_EQ(parameter->spec().decay, drawn) << name;
    double sum = 0.0, squares = 0.0;
    for (const float value :
         parameter->weight().span<float>().first(static_cast<std::size_t>(count))) {
      sum += double{value};
      squares += double{value} * double{value};
    }
    const auto n = static_cast<double>(count);
    if (drawn) {
      EXPECT_NEAR(std::sqrt(squares / n) / 0.02, 1.0, 4.0 / std::sqrt(2 * n)) << name;
    } else {
      const double expected = name.ends_with("weight") ? 1.0 : 0.0;
      EXPECT_EQ(sum, expected * n) << name;
      EXPECT_EQ(squares, expected * n) << name;
    }
  }
  EXPECT_EQ(elements, plan.parameters);
}

TEST_F(BertAlone, GradientsEqualCentralDifferences) {
  parallel::TrainerStep step(ctx_, grid_, models::bert_plan(tiny()), {});
  shake(step.stage());
  step.accumulate(std::vector{make(tiny(), false)});
  const std::set<std::string> checked = check_slopes(step.stage(), [&] { return loss(step); });
  for (const char* name :
       {"embedding.weight", "positions.weight", "segments.weight", "head.bias",
        "embedding.norm.bias", "head.transform.weight", "blocks.1.norm2.weight"}) {
    EXPECT_TRUE(checked.contains(name)) << name;
  }
}

// Only the first segment is in the data; padded positions get no gradient from what reads others.
TEST_F(BertAlone, WhatNobodyReadsHasNoGradient) {
  parallel::TrainerStep step(ctx_, grid_, models::bert_plan(tiny()), {});
  shake(step.stage());
  nn::MicroBatch batch = make_masked_texts(ctx_, tiny(), 0, 3, false);
  for (int i = 0; i < 3 * 9; ++i) batch.field(nn::kKeyEnd).data<std::int32_t>()[i] = 6;
  for (int i = 0; i < 3 * kMostMasked; ++i) {
    auto& row = batch.field(nn::kTargetRows).data<std::int32_t>()[i];
    row -= row % 9 >= 6 ? 6 : 0;
  }
  step.accumulate(std::vector{batch});
  for (const nn::Parameter* parameter : step.stage().parameters()) {
    const Values gradient = values_of(parameter->gradient());
    const auto all_zero = [&](std::size_t begin, std::size_t end) {
      bool zero = true;
      for (std::size_t i = begin; i < end; ++i) zero = zero && gradient[i] == 0.0;
      return zero;
    };
    if (parameter->name() == "segments.weight") {
      EXPECT_FALSE(all_zero(0, 16));
      EXPECT_TRUE(all_zero(16, 32));
    }
    if (parameter->name() == "positions.weight") {
      for (std::size_t position = 0; position < 9; ++position) {
        EXPECT_EQ(all_zero(16 * position, 16 * position + 16), position >= 6) << position;
      }
    }
  }
}

// Without targets the model returns the logits of the target rows, which are those of its loss.
TEST_F(BertAlone, ReturnsLogitsWithoutTargets) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const parallel::Stage stage(ctx_, grid_, models::bert_plan(tiny()),
                                {.compute = compute, .trains = false});
    const nn::MicroBatch with = make(tiny(), false);
    nn::BlockRun(ctx_, stage.blocks(0), with, nn::BlockRun::Keep::kNothing).forward({});
    nn::MicroBatch without = with;
    without.fields = {};
    for (const std::string_view name : {nn::kTokens, nn::kKeyEnd, nn::kTargetRows}) {
      without.fields.set(name, with.field(name));
    }
    const Tensors logits =
        nn::BlockRun(ctx_, stage.blocks(0), without, nn::BlockRun::Keep::kNothing).forward({});
    ASSERT_EQ(logits.size(), 1u);
    ASSERT_EQ(logits[0].shape(), (Shape{kSamples * kMostMasked, 13}));
    ASSERT_EQ(logits[0].dtype(), DType::kF32);
    double loss = 0.0;
    const Values values = values_of(logits[0]);
    const auto targets = with.field(nn::kTargets).span<std::int32_t>();
    for (std::size_t row = 0; row < targets.size(); ++row) {
      if (targets[row] < 0) continue;
      double sum = 0.0;
      for (std::size_t c = 0; c < 13; ++c) sum += std::exp(values[13 * row + c]);
      loss += std::log(sum) - values[13 * row + static_cast<std::size_t>(targets[row])];
    }
    EXPECT_NEAR(with.loss_sum.data<double>()[0], loss, 1e-5 * loss);
  }
}

// What `trireme bench ops` measures.
TEST(Bert, OperationsAreThoseOfTheModel) {
  BertConfig config = models::bert_preset("bert-base");
  config.context = 128;
  int attentions = 0, losses = 0;
  for (const models::Operation& operation : models::bert_model(config).operations(8)) {
    if (const auto* sizes = std::get_if<models::AttentionSizes>(&operation)) {
      ++attentions;
      EXPECT_EQ(sizes->shape, (ops::AttentionShape{8, 128, 12, 12, 64, false}));
    }
    if (const auto* sizes = std::get_if<models::ActivationSizes>(&operation)) {
      EXPECT_EQ(sizes->kind, nn::ActivationKind::kGeluErf);
      EXPECT_EQ(sizes->rows, 1024);
    }
    if (const auto* sizes = std::get_if<models::LossSizes>(&operation)) {
      ++losses;
      EXPECT_EQ(sizes->rows, 8 * 19);
      EXPECT_EQ(sizes->classes, 30522);
    }
  }
  EXPECT_EQ(attentions, 1);
  EXPECT_EQ(losses, 1);
}

// What a config.json says, and what is refused by its name.
TEST(Bert, ReadsTheConfigurationOfTransformers) {
  const auto parsed = [](const std::string& more) {
    return models::keys_of_bert(Json::parse(
        R"({"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 50,
            "num_attention_heads": 4, "layer_norm_eps": 1e-6, "classifier_dropout": 0.1)" +
        more + "}"));
  };
  const models::ForeignKeys read = parsed(R"(, "max_position_embeddings": 40, "novel": 1)");
  EXPECT_EQ(read.keys.at("width"), "32");
  EXPECT_EQ(read.keys.at("context"), "40");
  EXPECT_EQ(read.keys.at("hidden"), "3072");
  EXPECT_EQ(read.keys.at("norm_epsilon"), "1e-06");
  EXPECT_EQ(read.not_read, std::vector<std::string>{"novel"});
  // bad input: `import`: a BERT with relative positions | config.json: position_embedding_type is
  // "relative_key": our BERT models have "absolute" alone | 2
  EXPECT_EQ(
      message_of([&] { parsed(R"(, "position_embedding_type": "relative_key")"); }),
      R"(config.json: position_embedding_type is "relative_key": our BERT models have "absolute" alone)");
  EXPECT_EQ(message_of([&] { parsed(R"(, "hidden_act": "relu")"); }),
            R"(config.json: hidden_act is "relu": our BERT models have "gelu" alone)");
  EXPECT_EQ(message_of([&] { parsed(R"(, "is_decoder": true)"); }),
            "config.json: is_decoder is true: our BERT models have false alone");
  EXPECT_EQ(message_of([&] { parsed(R"(, "add_cross_attention": true)"); }),
            "config.json: add_cross_attention is true: our BERT models have false alone");
  EXPECT_EQ(message_of([&] { parsed(R"(, "type_vocab_size": 1)"); }),
            "config.json: type_vocab_size is 1: our BERT models have 2 alone");
  EXPECT_EQ(message_of([&] { parsed(R"(, "tie_word_embeddings": false)"); }),
            "config.json: tie_word_embeddings is false: our BERT models have true alone");
}

}  // namespace
}  // namespace trireme::testing
