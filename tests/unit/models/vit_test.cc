// The family vit: its sizes and the published ones, its keys, its initial values, its sequence
// of patches and its gradients. What it computes is compared with Hugging Face's model by
// vit_torch_test, and grids with one rank by vit_grids_test.
#include "models/vit/vit.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/json.h"
#include "trireme/comm/dry_rank.h"
#include "trireme/nn/block_run.h"
#include "trireme/nn/fields.h"
#include "trireme/parallel/trainer_step.h"

#include "support/message_of.h"
#include "support/ops_testing.h"
#include "support/picture_logits.h"
#include "support/slopes.h"

namespace trireme::testing {
namespace {

using models::VitConfig;

models::ModelRequest request(const OptionValues& keys) {
  return {"vit", keys};
}

VitConfig tiny() {
  return {.layers = 2,
          .width = 16,
          .heads = 2,
          .hidden = 24,
          .patch = 3,
          .image = 9,
          .classes = 7,
          .norm_epsilon = 1e-5};
}

nn::MicroBatch make_batch(ops::Context& ctx, const VitConfig& model, std::int64_t samples,
                          bool training) {
  nn::MicroBatch batch;
  batch.batch = samples;
  batch.length = 1;
  batch.training = training;
  batch.fields.set(nn::kPixels,
                   make_tensor(ctx, random_values(5, samples * model.image * model.image * 3),
                               {samples, model.image, model.image, 3}, DType::kF32));
  std::vector<std::int32_t> targets;
  std::vector<std::int64_t> numbers;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    numbers.push_back(sample);
    targets.push_back(static_cast<std::int32_t>(sample * 5 % model.classes));
  }
  batch.fields.set(nn::kTargets, make_tensor(ctx, targets));
  batch.samples = make_tensor(ctx, numbers);
  batch.target_count = samples;
  batch.loss_sum = make_tensor(ctx, 0.0);
  return batch;
}

// Parameters as timm counts those of its models of the same sizes; multiplications with additions
// of a forward, in millions, as the papers have them: Dosovitskiy et al. and Touvron et al. count
// 17.6 and 1.3 billion for base and tiny, 4.6 for small.
struct Published {
  const char* preset;
  std::int64_t parameters;
  double multiply_adds;
};
constexpr Published kPublished[] = {{"vit-tiny", 5'717'416, 1'254},
                                    {"vit-small", 22'050'664, 4'599},
                                    {"vit-base", 86'567'656, 17'564}};

TEST(Vit, HasThePublishedSizes) {
  for (const Published& published : kPublished) {
    const nn::ModelPlan plan = models::vit_plan(models::vit_preset(published.preset));
    EXPECT_EQ(plan.parameters, published.parameters) << published.preset;
    EXPECT_NEAR(plan.flops_per_sample / 3 / 2 / 1e6 / published.multiply_adds, 1.0, 0.005)
        << published.preset;
    EXPECT_EQ(plan.rows, 197);
    EXPECT_EQ(plan.length, 1);  // one target
    EXPECT_EQ(plan.blocks.size(), 14u);
  }
}

TEST(Vit, KeysFollowFromThePresetAndTheData) {
  const auto resolved = [](const OptionValues& keys, const models::DataFacts& data = {}) {
    return models::resolve(request(keys), data).request.keys;
  };
  EXPECT_EQ(resolved({}).at("width"), "768");
  EXPECT_EQ(resolved({}).at("classes"), "1000");
  EXPECT_EQ(resolved({}, {.classes = 37}).at("classes"), "37");
  EXPECT_EQ(resolved({{"width", "96"}, {"heads", "3"}}).at("hidden"), "384");
  EXPECT_EQ(resolved({{"preset", "vit-small"}}).at("norm_epsilon"), "1e-06");
  const OptionValues cifar = resolved({{"preset", "vit-tiny-cifar"}}, {.classes = 10});
  EXPECT_EQ(cifar.at("patch"), "4");
  EXPECT_EQ(models::sample_shape(request({{"preset", "vit-tiny-cifar"}})), (Shape{32, 32, 3}));
  const models::Model model = models::resolve(request(cifar), {});
  EXPECT_EQ(model.request.keys, cifar);
  EXPECT_EQ(model.plan.rows, 65);
  EXPECT_EQ(model.plan.description,
            "vision transformer, 12 layers, width 192, 3 heads, 32 x 32 pixels in patches of "
            "4 x 4, 10 classes");
  EXPECT_EQ(model.attention, (ops::AttentionShape{1, 65, 3, 3, 64, false}));
  EXPECT_EQ(models::summary(request({{"preset", "vit-tiny"}, {"layers", "6"}})),
            "vit-tiny, 6 layers");
}

// Names of so many classes must not take time that grows with their square: that would be minutes.
TEST(Vit, ForeignConfigNamesAllClasses) {
  constexpr int kClasses = 200000;
  const models::Model model =
      models::resolve(request({{"preset", "vit-tiny"}, {"classes", std::to_string(kClasses)}}), {});
  const Json config = Json::parse_unique(model.foreign().config());
  const Json::Object& names = config.at("id2label").members();
  const Json::Object& numbers = config.at("label2id").members();
  ASSERT_EQ(names.size(), std::size_t{kClasses});
  ASSERT_EQ(numbers.size(), std::size_t{kClasses});
  for (int i = 0; i < kClasses; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(names[at].key, std::to_string(i));
    ASSERT_EQ(names[at].value.text(), "LABEL_" + std::to_string(i));
    ASSERT_EQ(numbers[at].key, "LABEL_" + std::to_string(i));
    ASSERT_EQ(numbers[at].value.integer(), i);
  }
}

TEST(Vit, RefusesKeysThatCannotBe) {
  // bad input: `train`: `model.patch` that does not divide the picture | model.patch (7) does not
  // divide model.image (32): one of 1, 2, 4, 8, 16, 32 would | 2
  EXPECT_EQ(message_of([] {
              models::resolve(request({{"preset", "vit-tiny-cifar"}, {"patch", "7"}}), {});
            }),
            "model.patch (7) does not divide model.image (32): one of 1, 2, 4, 8, 16, 32 would");
  EXPECT_EQ(message_of([] {
              models::find_family("vit").check_keys({{"heads", "5"}, {"width", "12"}});
            }),
            "model.heads (5) does not divide model.width (12): one of 1, 2, 3, 4, 6, 12 would");
  EXPECT_EQ(message_of([] {
              models::resolve(request({{"heads", "5"}}), {});
            }),
            "model.heads (5) does not divide model.width (768): one of 1, 2, 3, 4, 6, 8, 12, 16, "
            "24, 32, 48, 64, 96, 128, 192, 256, 384, 768 would");
  EXPECT_EQ(message_of([] {
              models::sample_shape(request({{"preset", "vit-huge"}}));
            }),
            "model.preset 'vit-huge' is unknown; there are vit-tiny, vit-small, vit-base, "
            "vit-tiny-cifar");
  const models::Model model = models::resolve(request({{"preset", "vit-tiny"}}), {});
  EXPECT_EQ(message_of([&] {
              model.check_grid({1, 1, 2});
            }),
            "3 heads cannot be split over 2 tensor ranks: grid.tensor must divide model.heads");
  EXPECT_EQ(message_of([&] { model.check_grid({2, 4, 3}); }), "no error");
}

class VitAlone : public ::testing::Test {
 protected:
  double loss(parallel::TrainerStep& step) {
    const nn::MicroBatch batch = make_batch(ctx_, tiny(), kSamples, false);
    return parallel::evaluate(step.executor(), 1, [&](int) { return batch; }).loss_sum;
  }
  static constexpr std::int64_t kSamples = 5;
  ops::Context ctx_ = ops::make_cpu_context(1);
  DryRank rank_{{}};
  ProcessGrid grid_{rank_, {1, 1, 1}};
};

TEST_F(VitAlone, ParametersAreThoseOfThePlanWithTheirInitialValues) {
  const nn::ModelPlan plan = models::vit_plan(models::vit_preset("vit-tiny-cifar"));
  const parallel::Stage stage(ctx_, grid_, plan, {.trains = false});
  std::int64_t elements = 0;
  for (const nn::Parameter* parameter : stage.parameters()) {
    const std::string& name = parameter->name();
    const auto n = static_cast<double>(parameter->placement().global.elements());
    elements += parameter->placement().global.elements();
    const bool drawn = name.ends_with("weight") && name.find("norm") == std::string::npos;
    const bool special = name == "embedding.class_token" || name == "positions.weight";
    EXPECT_EQ(parameter->spec().decay, drawn && !special) << name;
    double sum = 0.0, squares = 0.0;
    for (const float value : parameter->weight().span<float>()) {
      sum += double{value};
      squares += double{value} * double{value};
    }
    if (drawn || special) {
      EXPECT_NEAR(std::sqrt(squares / n) / 0.02, 1.0, 4.0 / std::sqrt(2 * n)) << name;
    } else {
      const double expected = name.ends_with("weight") ? 1.0 : 0.0;
      EXPECT_EQ(sum, expected * n) << name;
      EXPECT_EQ(squares, expected * n) << name;
    }
  }
  EXPECT_EQ(elements, plan.parameters);
}

// Position 0 is the class token, and position 1 + p patch p, counted row by row.
TEST_F(VitAlone, PatchesAreASequenceBehindTheClassToken) {
  const VitConfig model = tiny();
  const nn::ModelPlan plan = models::vit_plan(model);
  const parallel::Stage stage(ctx_, grid_, plan, {.trains = false});
  const auto parameter = [&](const std::string& name) {
    for (const nn::Parameter* one : stage.parameters()) {
      if (one->name() == name) return values_of(one->weight());
    }
    throw std::runtime_error(name);
  };
  for (const nn::Parameter* one : stage.parameters()) {  // none of them is zero
    const Values values = random_values(77, one->weight().elements());
    std::copy(values.begin(), values.end(), one->weight().data<float>());
  }
  const nn::MicroBatch batch = make_batch(ctx_, model, 2, false);
  nn::Tape tape(ctx_, false);
  const Tensor rows = stage.blocks(0).front()->forward(tape, batch, {}).front().tensor();
  ASSERT_EQ(rows.shape(), (Shape{2 * 10, 16}));
  const Values seen = values_of(rows), token = parameter("embedding.class_token"),
               positions = parameter("positions.weight"),
               weight = parameter("embedding.patches.weight"),
               bias = parameter("embedding.patches.bias"),
               pixels = values_of(batch.field(nn::kPixels));
  for (std::size_t sample = 0; sample < 2; ++sample) {
    for (std::size_t position = 0; position < 10; ++position) {
      for (std::size_t c = 0; c < 16; ++c) {
        double expected = positions[position * 16 + c];
        if (position == 0) expected += token[c];
        if (position > 0) {
          const std::size_t top = (position - 1) / 3 * 3, left = (position - 1) % 3 * 3;
          expected += bias[c];
          for (std::size_t i = 0; i < 27; ++i) {
            const std::size_t y = top + i / 9, x = left + i / 3 % 3;
            expected += weight[c * 27 + i] * pixels[((sample * 9 + y) * 9 + x) * 3 + i % 3];
          }
        }
        EXPECT_NEAR(seen[(sample * 10 + position) * 16 + c], expected, 1e-4)
            << sample << " " << position << " " << c;
      }
    }
  }
}

TEST_F(VitAlone, GradientsEqualCentralDifferences) {
  parallel::TrainerStep step(ctx_, grid_, models::vit_plan(tiny()), {});
  // Larger weights than a fresh model's, so that every gradient stands out from rounding.
  for (const nn::FlatGroup* group : step.stage().groups()) {
    const Values shift = random_values(3, group->master().elements());
    const auto values = group->master().span<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 4.0f * values[i] + 0.1f * static_cast<float>(shift[i]);
    }
  }
  step.accumulate(std::vector{make_batch(ctx_, tiny(), kSamples, false)});
  const std::set<std::string> checked = check_slopes(step.stage(), [&] { return loss(step); });
  EXPECT_TRUE(checked.contains("embedding.class_token"));
  EXPECT_TRUE(checked.contains("positions.weight"));
  EXPECT_TRUE(checked.contains("blocks.1.mlp.up.bias"));
}

// Without targets the model returns logits, which are those of its loss.
TEST_F(VitAlone, ReturnsLogitsWithoutTargets) {
  const VitConfig model = tiny();
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const parallel::Stage stage(ctx_, grid_, models::vit_plan(model),
                                {.compute = compute, .trains = false});
    expect_logits_of_loss(ctx_, stage, make_batch(ctx_, model, 4, false), 7);
  }
}

// What `trireme bench ops` measures.
TEST(Vit, OperationsAreThoseOfTheModel) {
  const models::Model model = models::vit_model(models::vit_preset("vit-tiny-cifar"));
  int attentions = 0, patches = 0, by_erf = 0;
  for (const models::Operation& operation : model.operations(2)) {
    if (const auto* sizes = std::get_if<models::AttentionSizes>(&operation)) {
      ++attentions;
      EXPECT_EQ(sizes->shape, (ops::AttentionShape{2, 65, 3, 3, 64, false}));
    }
    if (const auto* sizes = std::get_if<models::ConvolutionSizes>(&operation)) {
      ++patches;
      EXPECT_EQ(sizes->shape.output(), (Shape{2, 8, 8, 192}));
    }
    if (const auto* sizes = std::get_if<models::ActivationSizes>(&operation)) {
      by_erf += sizes->kind == nn::ActivationKind::kGeluErf;
      EXPECT_EQ(sizes->rows, 130);
    }
  }
  EXPECT_EQ(attentions, 1);
  EXPECT_EQ(patches, 1);
  EXPECT_EQ(by_erf, 1);
}

}  // namespace
}  // namespace trireme::testing
