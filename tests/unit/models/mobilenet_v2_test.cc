// The family mobilenet_v2: its sizes and the published ones, its keys, its initial values, its
// gradients, and its names in torchvision. What it computes is compared with PyTorch by
// convolutional_torch_test, and grids with one rank by convolutional_grids_test.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/parallel/trainer_step.h"

#include "models/mobilenet_v2/torchvision_names.h"
#include "support/message_of.h"
#include "support/picture_logits.h"
#include "support/small_convolutional.h"

namespace trireme::testing {
namespace {

using models::DataFacts;
using models::MobileNetV2Config;
using Stem = MobileNetV2Config::Stem;

models::ModelRequest request(const OptionValues& keys) {
  return {"mobilenet_v2", keys};
}

MobileNetV2Config of_width(double multiple) {
  MobileNetV2Config config;
  config.width_multiple = multiple;
  return config;
}

// Those of the forward of one picture, as the literature counts: a multiplication and an addition
// are one.
double multiply_adds(const nn::ModelPlan& plan) {
  return plan.flops_per_sample / 3 / 2;
}

struct Published {
  double width, multiply_adds, parameters;  // in millions, those of norms left out
};
// The table of the paper's published code (tensorflow/models, slim/nets/mobilenet), 224 x 224.
constexpr Published kPublished[] = {
    {1.4, 582, 6.06}, {1.0, 300, 3.47}, {0.75, 209, 2.61}, {0.5, 97, 1.95}, {0.35, 59, 1.66}};

TEST(MobileNetV2, HasThePublishedSizes) {
  EXPECT_EQ(models::mobilenet_v2_plan({}).parameters, 3'504'872);  // as torchvision counts
  for (const Published& published : kPublished) {
    const MobileNetV2Config config = of_width(published.width);
    const nn::ModelPlan plan = models::mobilenet_v2_plan(config);
    const models::MobileNetV2Sizes sizes(config);
    std::int64_t norms = 2 * (sizes.stem.out + sizes.head.out);
    for (const models::InvertedResidual& block : sizes.blocks) {
      norms += 2 * ((block.expands() ? 2 : 1) * block.hidden + block.out);
    }
    EXPECT_NEAR(static_cast<double>(plan.parameters - norms) / 1e6, published.parameters, 0.02)
        << published.width;
    EXPECT_NEAR(multiply_adds(plan) / 1e6, published.multiply_adds, 0.01 * published.multiply_adds)
        << published.width;
  }
}

// For 32 x 32: the first picture of the head has 4 x 4 pixels, and not one.
TEST(MobileNetV2, HasAStemForSmallPictures) {
  const MobileNetV2Config cifar = models::mobilenet_v2_preset("mobilenet_v2-cifar");
  const models::MobileNetV2Sizes small(cifar), large(MobileNetV2Config{});
  EXPECT_EQ(small.stem.stride, 1);
  EXPECT_EQ(small.last_side, 4);
  EXPECT_EQ(large.stem.stride, 2);
  EXPECT_EQ(large.last_side, 7);
  std::vector<std::size_t> differ;
  for (std::size_t i = 0; i < large.blocks.size(); ++i) {
    if (small.blocks[i].stride != large.blocks[i].stride) differ.push_back(i);
  }
  EXPECT_EQ(differ, std::vector<std::size_t>{1});
  EXPECT_EQ(models::mobilenet_v2_plan(cifar).parameters, 3'504'872 - 990 * 1281);
  EXPECT_NEAR(multiply_adds(models::mobilenet_v2_plan(cifar)) / 1e6, 88, 1);
}

TEST(MobileNetV2, KeysChangeAPreset) {
  const models::Model model = models::resolve(request({{"preset", "mobilenet_v2-cifar"}}), {});
  EXPECT_EQ(model.request.keys, (OptionValues{{"classes", "10"},
                                              {"image", "32"},
                                              {"stem", "cifar"},
                                              {"width_multiple", "1"},
                                              {"dropout", "0"},
                                              {"batch_norm", "replica"},
                                              {"label_smoothing", "0"}}));
  // What is written out is the whole model.
  EXPECT_EQ(models::resolve(model.request, {}).request, model.request);
  const auto resolved = [](const OptionValues& keys, const DataFacts& data = {}) {
    return models::resolve(request(keys), data).request.keys;
  };
  EXPECT_EQ(resolved({}).at("image"), "224");
  EXPECT_EQ(resolved({}).at("dropout"), "0.2");
  EXPECT_EQ(resolved({}).at("classes"), "1000");
  EXPECT_EQ(resolved({}, {.classes = 37}).at("classes"), "37");
  EXPECT_EQ(resolved({{"preset", "mobilenet_v2-cifar"}}, {.classes = 100}).at("classes"), "100");
  EXPECT_EQ(resolved({{"image", "95"}}).at("stem"), "cifar");
  EXPECT_EQ(resolved({{"image", "96"}}).at("stem"), "imagenet");
  EXPECT_EQ(resolved({{"image", "32"}, {"stem", "imagenet"}}).at("stem"), "imagenet");
  EXPECT_EQ(models::sample_shape(request({{"preset", "mobilenet_v2-cifar"}})), (Shape{32, 32, 3}));
  EXPECT_EQ(models::sample_shape(request({{"image", "48"}})), (Shape{48, 48, 3}));
  EXPECT_EQ(models::summary(request({{"preset", "mobilenet_v2-cifar"}, {"width_multiple", "0.5"}})),
            "mobilenet_v2-cifar, width x 0.5");
  EXPECT_EQ(models::summary(model.request), "width x 1, 32 x 32 pixels, 10 classes");
  EXPECT_EQ(model.plan.description,
            "MobileNetV2, width x 1, 32 x 32 pixels, CIFAR's stem, 10 classes; batch norm over "
            "each micro-batch");
}

TEST(MobileNetV2, RefusesKeysThatCannotBe) {
  // bad input: `train`: `model.classes` that the data contradict | model.classes is 7, but the data
  // has 10 classes: leave it out, and it follows the data | 2
  EXPECT_EQ(
      message_of([] {
        models::resolve(request({{"classes", "7"}}), {.classes = 10});
      }),
      "model.classes is 7, but the data has 10 classes: leave it out, and it follows the data");
  // bad input: `train`: a preset that no family has, or another one | model.preset 'mobilenet_v9'
  // is unknown; there are mobilenet_v2, mobilenet_v2-cifar; model.preset gpt2-124m is of another
  // family: add --model.family gpt | 2
  EXPECT_EQ(message_of([] {
              models::sample_shape(request({{"preset", "mobilenet_v9"}}));
            }),
            "model.preset 'mobilenet_v9' is unknown; there are mobilenet_v2, mobilenet_v2-cifar");
  EXPECT_EQ(message_of([] {
              models::sample_shape(request({{"preset", "gpt2-124m"}}));
            }),
            "model.preset gpt2-124m is of another family: add --model.family gpt");
  // bad input: `train`: `grid.tensor` for a model of convolutions | grid.tensor is 2, but
  // mobilenet_v2 is not split over tensor ranks: give the ranks to grid.data, or to grid.pipeline
  // (at most 19 stages) | 2
  const models::Model model = models::resolve(request({}), {});
  EXPECT_EQ(message_of([&] {
              model.check_grid({2, 2, 2});
            }),
            "grid.tensor is 2, but mobilenet_v2 is not split over tensor ranks: give the ranks to "
            "grid.data, or to grid.pipeline (at most 19 stages)");
  EXPECT_EQ(message_of([&] { model.check_grid({4, 19, 1}); }), "no error");
}

using MobileNetV2Alone = Alone;

TEST_F(MobileNetV2Alone, ParametersAreThoseOfThePlanWithTheirInitialValues) {
  const MobileNetV2Config config = models::mobilenet_v2_preset("mobilenet_v2-cifar");
  const nn::ModelPlan plan = models::mobilenet_v2_plan(config);
  const parallel::Stage stage(ctx_, grid_, plan, {.trains = false});
  std::int64_t elements = 0;
  for (const nn::Parameter* parameter : stage.parameters()) {
    const Shape shape = parameter->placement().global;
    elements += shape.elements();
    const std::string& name = parameter->name();
    const bool matrix = name.ends_with("convolution.weight") || name == "head.classifier.weight";
    EXPECT_EQ(parameter->spec().decay, matrix) << name;
    double sum = 0.0, squares = 0.0;
    for (const float value : parameter->weight().span<float>()) {
      sum += double{value};
      squares += double{value} * double{value};
    }
    const auto n = static_cast<double>(shape.elements());
    if (matrix) {
      // Fan out: the output channels times the taps of the kernel.
      const double expected =
          name == "head.classifier.weight"
              ? 0.01
              : std::sqrt(2.0 / static_cast<double>(shape[0] * shape[1] * shape[2]));
      EXPECT_NEAR(std::sqrt(squares / n) / expected, 1.0, 4.0 / std::sqrt(2 * n)) << name;
      EXPECT_LT(std::abs(sum / n) / expected, 5.0 / std::sqrt(n)) << name;
    } else {
      const double expected = name.ends_with("norm.weight") ? 1.0 : 0.0;
      EXPECT_EQ(sum, expected * n) << name;
      EXPECT_EQ(squares, expected * n) << name;
    }
  }
  EXPECT_EQ(elements, plan.parameters);
}

TEST_F(MobileNetV2Alone, EveryTensorHasItsNameInTorchvision) {
  for (const MobileNetV2Config& config : {MobileNetV2Config(), small_mobilenet()}) {
    const nn::ModelPlan plan = models::mobilenet_v2_plan(config);
    const parallel::Stage stage(ctx_, grid_, plan, {.trains = false, .seed = {}});
    const auto names = names_of_all(stage, models::torchvision_model(config).tensors);
    EXPECT_TRUE(names.contains("features.0.1.running_var"));
    EXPECT_TRUE(names.contains("features.1.conv.1.weight"));  // no expansion in the first
    EXPECT_TRUE(names.contains("features.2.conv.2.weight"));
  }
}

class MobileNetV2Block : public BlockAlone {
 protected:
  void build(const std::string& name) {
    build_block(models::mobilenet_v2_plan(small_mobilenet()), small_mobilenet(), name);
  }
};

TEST_F(MobileNetV2Block, GradientsEqualCentralDifferences) {
  const models::MobileNetV2Sizes sizes(small_mobilenet());
  for (std::size_t i = 0; i < sizes.blocks.size(); ++i) {
    build(fmt::format("blocks.{}", i));
    const models::InvertedResidual& block = sizes.blocks[i];
    const Shape shape{kSamples, block.side, block.side, block.in};
    const Tensor x = make_tensor(ctx_, random_values(3, shape.elements()), shape, DType::kF32);
    expect_gradients(x, fmt::format("block {}", i));
  }
}

// The residual: where the projection's norm is zero, the block hands on its input, and only where
// the sizes allow it.
TEST_F(MobileNetV2Block, AddsItsInputWhereSizesAreEqual) {
  const models::MobileNetV2Sizes sizes(small_mobilenet());
  int adding = 0;
  for (std::size_t i = 0; i < sizes.blocks.size(); ++i) {
    build(fmt::format("blocks.{}", i));
    const models::InvertedResidual& block = sizes.blocks[i];
    const Shape shape{kSamples, block.side, block.side, block.in};
    const Tensor x = make_tensor(ctx_, random_values(3, shape.elements()), shape, DType::kF32);
    for (const auto& parameter : block_->parameters().parameters()) {
      if (parameter->name().ends_with("project.norm.weight"))
        ops::fill(ctx_, parameter->weight(), 0);
    }
    nn::Tape tape(ctx_, false);
    const Tensor y = block_->forward(tape, batch_, {tape.input(x, false)}).front().tensor();
    if (block.adds()) {
      EXPECT_EQ(bits_of(y), bits_of(x));
      ++adding;
    } else {
      EXPECT_EQ(values_of(y), Values(static_cast<std::size_t>(y.elements()), 0.0));
    }
  }
  EXPECT_EQ(adding, 2);
}

// Without targets the model returns logits, which are those of its loss.
TEST_F(MobileNetV2Alone, ReturnsLogitsWithoutTargets) {
  MobileNetV2Config config = small_mobilenet();
  config.label_smoothing = 0.0;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const parallel::Stage stage(ctx_, grid_, models::mobilenet_v2_plan(config),
                                {.compute = compute, .trains = false});
    expect_logits_of_loss(ctx_, stage, make_picture_batch(ctx_, config, 4, 0, false), 7);
  }
}

// What `trireme bench ops` measures.
TEST_F(MobileNetV2Alone, OperationsAreThoseOfTheModel) {
  const MobileNetV2Config config = models::mobilenet_v2_preset("mobilenet_v2-cifar");
  const models::Model model = models::mobilenet_v2_model(config);
  int convolutions = 0, depthwise = 0;
  for (const models::Operation& operation : model.operations(2)) {
    if (const auto* sizes = std::get_if<models::ConvolutionSizes>(&operation)) {
      ++convolutions;
      if (sizes->shape.depthwise()) ++depthwise;
      EXPECT_EQ(sizes->shape.batch, 2);
    }
  }
  // Those of different sizes among 52 convolutions, 17 of them depthwise: besides the depthwise
  // ones 6 that expand, 12 that project, the stem and the head.
  EXPECT_EQ(convolutions, 30);
  EXPECT_EQ(depthwise, 10);
}

}  // namespace
}  // namespace trireme::testing
