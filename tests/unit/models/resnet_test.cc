// The family resnet: its sizes and the published ones, its keys, its initial values, its
// gradients, and its names in torchvision. What it computes is compared with PyTorch by
// convolutional_torch_test, and grids with one rank by convolutional_grids_test.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/parallel/trainer_step.h"

#include "models/resnet/torchvision_names.h"
#include "support/message_of.h"
#include "support/small_convolutional.h"

namespace trireme::testing {
namespace {

using models::ResNetConfig;

models::ModelRequest request(const OptionValues& keys) {
  return {"resnet", keys};
}

struct Published {
  std::string_view preset;
  std::int64_t parameters;
  double multiply_adds;  // in thousand millions
};
// What torchvision's documentation says; for CIFAR what github.com/kuangliu/pytorch-cifar's models
// count, whose ResNets are these.
constexpr Published kPublished[] = {
    {"resnet18", 11'689'512, 1.814},      {"resnet34", 21'797'672, 3.664},
    {"resnet50", 25'557'032, 4.089},      {"resnet18-cifar", 11'173'962, 0.556},
    {"resnet34-cifar", 21'282'122, 1.16}, {"resnet50-cifar", 23'520'842, 1.30}};

TEST(ResNet, HasThePublishedSizes) {
  for (const Published& published : kPublished) {
    const nn::ModelPlan plan = models::resnet_plan(models::resnet_preset(published.preset));
    EXPECT_EQ(plan.parameters, published.parameters) << published.preset;
    // A multiplication and an addition of the forward are one.
    EXPECT_NEAR(plan.flops_per_sample / 6 / 1e9, published.multiply_adds,
                0.005 * published.multiply_adds)
        << published.preset;
  }
}

// The stride of a bottleneck is in its 3 x 3 convolution, and the published stem makes pictures a
// quarter as wide.
TEST(ResNet, StridesAreTorchvisions) {
  const models::ResNetSizes deep(models::resnet_preset("resnet50"));
  EXPECT_EQ(deep.stem.side_after(224), 56);
  EXPECT_EQ(deep.stages[1][0].path[0].stride, 1);
  EXPECT_EQ(deep.stages[1][0].path[1].stride, 2);
  EXPECT_EQ(deep.stages[1][0].side, 56);
  EXPECT_EQ(deep.stages[3].back().side_after(), 7);
  EXPECT_TRUE(deep.stages[0][0].shortcut);  // it widens
  const models::ResNetSizes small(models::resnet_preset("resnet18-cifar"));
  EXPECT_EQ(small.stem.side_after(32), 32);
  EXPECT_EQ(small.stages[3].back().side_after(), 4);
  EXPECT_FALSE(small.stages[0][0].shortcut);
  EXPECT_TRUE(small.stages[1][0].shortcut);
}

TEST(ResNet, KeysChangeAPreset) {
  const models::Model model = models::resolve(request({{"preset", "resnet50-cifar"}}), {});
  EXPECT_EQ(model.request.keys, (OptionValues{{"classes", "10"},
                                              {"depth", "50"},
                                              {"image", "32"},
                                              {"stem", "cifar"},
                                              {"batch_norm", "replica"},
                                              {"label_smoothing", "0"}}));
  // What is written out is the whole model.
  EXPECT_EQ(models::resolve(model.request, {}).request, model.request);
  EXPECT_EQ(models::resolve(model.request, {}).plan.parameters, model.plan.parameters);
  const auto resolved = [](const OptionValues& keys, const models::DataFacts& data = {}) {
    return models::resolve(request(keys), data).request.keys;
  };
  EXPECT_EQ(resolved({}).at("depth"), "18");
  EXPECT_EQ(resolved({}).at("image"), "224");
  EXPECT_EQ(resolved({{"preset", "resnet18-cifar"}, {"depth", "34"}}).at("depth"), "34");
  EXPECT_EQ(resolved({{"preset", "resnet18-cifar"}, {"depth", "34"}}).at("image"), "32");
  EXPECT_EQ(resolved({}, {.classes = 37}).at("classes"), "37");
  EXPECT_EQ(resolved({{"image", "95"}}).at("stem"), "cifar");
  EXPECT_EQ(models::sample_shape(request({{"preset", "resnet34-cifar"}})), (Shape{32, 32, 3}));
  EXPECT_EQ(models::summary(request({{"preset", "resnet18-cifar"}, {"depth", "34"}})),
            "resnet18-cifar, 34 layers");
  EXPECT_EQ(
      model.plan.description,
      "ResNet-50, 32 x 32 pixels, CIFAR's stem, 10 classes; batch norm over each micro-batch");
  EXPECT_TRUE(models::joins_replicas(request({{"batch_norm", "sync"}})));
}

TEST(ResNet, RefusesWhatCannotBe) {
  EXPECT_EQ(message_of([] {
              models::sample_shape(request({{"preset", "resnet152"}}));
            }),
            "model.preset 'resnet152' is unknown; there are resnet18, resnet34, resnet50, "
            "resnet18-cifar, resnet34-cifar, resnet50-cifar");
  // bad input: a checkpoint of a ResNet of an unknown depth | model.depth is 20, but resnet
  // is 18, 34 or 50 layers deep | 2
  EXPECT_EQ(message_of([] {
              models::sample_shape(request({{"depth", "20"}}));
            }),
            "model.depth is 20, but resnet is 18, 34 or 50 layers deep");
  EXPECT_EQ(message_of([] {
              models::resolve(request({}), {}).check_grid({1, 1, 2});
            }),
            "grid.tensor is 2, but resnet is not split over tensor ranks: give the ranks to "
            "grid.data, or to grid.pipeline (at most 10 stages)");
}

using ResNetAlone = Alone;

TEST_F(ResNetAlone, ParametersAreThoseOfThePlanWithTheirInitialValues) {
  for (const char* preset : {"resnet18-cifar", "resnet50"}) {
    const nn::ModelPlan plan = models::resnet_plan(models::resnet_preset(preset));
    const parallel::Stage stage(ctx_, grid_, plan, {.trains = false});
    std::int64_t elements = 0;
    for (const nn::Parameter* parameter : stage.parameters()) {
      const std::string& name = parameter->name();
      const Shape shape = parameter->placement().global;
      const auto n = static_cast<double>(shape.elements());
      elements += shape.elements();
      double sum = 0.0, squares = 0.0, largest = 0.0;
      for (const float value : parameter->weight().span<float>()) {
        sum += double{value};
        squares += double{value} * double{value};
        largest = std::max(largest, std::abs(double{value}));
      }
      EXPECT_EQ(parameter->spec().decay, shape.rank() > 1) << name;
      if (name.starts_with("head.classifier")) {
        // Uniform, as torch.nn.Linear begins.
        const double bound = 1.0 / std::sqrt(preset == std::string("resnet50") ? 2048.0 : 512.0);
        EXPECT_LE(largest, bound) << name;
        EXPECT_NEAR(std::sqrt(3.0 * squares / n) / bound, 1.0, 3.0 / std::sqrt(n)) << name;
        EXPECT_LT(std::abs(sum / n) / bound, 3.0 / std::sqrt(n)) << name;
      } else if (name.ends_with("convolution.weight")) {
        const double expected =
            std::sqrt(2.0 / static_cast<double>(shape[0] * shape[1] * shape[2]));
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
}

TEST_F(ResNetAlone, EveryTensorHasItsNameInTorchvision) {
  for (const bool bottlenecks : {false, true}) {
    const ResNetConfig config = small_resnet(bottlenecks);
    const parallel::Stage stage(ctx_, grid_, models::resnet_plan(config),
                                {.trains = false, .seed = {}});
    const auto names = names_of_all(stage, models::torchvision_model(config).tensors);
    EXPECT_TRUE(names.contains("bn1.running_var"));
    EXPECT_TRUE(names.contains("layer2.0.downsample.1.bias"));
    EXPECT_EQ(names.contains("layer2.1.conv3.weight"), bottlenecks);
    EXPECT_EQ(names.contains("layer1.0.downsample.0.weight"), bottlenecks);
  }
}

class ResNetBlock : public BlockAlone, public ::testing::WithParamInterface<bool> {
 protected:
  // Calls what(residual) for each block, once it is built, with an input for it.
  template <class What>
  void for_each_block(const What& what) {
    const ResNetConfig config = small_resnet(GetParam());
    const models::ResNetSizes sizes(config);
    int number = 0;
    for (const auto& stage : sizes.stages) {
      for (const models::Residual& residual : stage) {
        const std::string name = fmt::format("blocks.{}", number++);
        build_block(models::resnet_plan(config), config, name);
        const Shape shape{kSamples, residual.side, residual.side, residual.path[0].in};
        what(residual, name,
             make_tensor(ctx_, random_values(3, shape.elements()), shape, DType::kF32));
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Layers, ResNetBlock, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "Bottleneck" : "Two"; });

TEST_P(ResNetBlock, GradientsEqualCentralDifferences) {
  for_each_block([&](const models::Residual&, const std::string& name, const Tensor& x) {
    expect_gradients(x, name);
  });
}

// Where the last norm is zero, the block hands on the positive part of its input, or of what its
// shortcut makes of it.
TEST_P(ResNetBlock, AddsItsInputOrItsShortcut) {
  int plain = 0;
  for_each_block([&](const models::Residual& sizes, const std::string&, const Tensor& x) {
    const std::string last = sizes.path.size() == 3 ? "third" : "second";
    for (const auto& parameter : block_->parameters().parameters()) {
      const std::string& name = parameter->name();
      if (name.ends_with(last + ".norm.weight")) ops::fill(ctx_, parameter->weight(), 0);
      if (name.ends_with("shortcut.norm.weight")) ops::fill(ctx_, parameter->weight(), 0);
      if (name.ends_with("shortcut.norm.bias")) ops::fill(ctx_, parameter->weight(), 3);
    }
    nn::Tape tape(ctx_, false);
    const Tensor y = block_->forward(tape, batch_, {tape.input(x, false)}).front().tensor();
    EXPECT_EQ(y.shape(),
              (Shape{kSamples, sizes.side_after(), sizes.side_after(), sizes.path.back().out}));
    Values expected(static_cast<std::size_t>(y.elements()), 3.0);
    if (!sizes.shortcut) {
      ++plain;
      expected = values_of(x);
      for (double& value : expected) value = std::max(value, 0.0);
    }
    EXPECT_EQ(values_of(y), expected);
  });
  EXPECT_EQ(plain, GetParam() ? 2 : 3);
}

// What `trireme bench ops` measures.
TEST_F(ResNetAlone, OperationsAreThoseOfTheModel) {
  const models::Model model = models::resnet_model(models::resnet_preset("resnet18"));
  int convolutions = 0, poolings = 0;
  for (const models::Operation& operation : model.operations(2)) {
    if (std::holds_alternative<models::ConvolutionSizes>(operation)) ++convolutions;
    if (const auto* sizes = std::get_if<models::MaxPoolingSizes>(&operation)) {
      ++poolings;
      EXPECT_EQ(sizes->shape.output(), (Shape{2, 56, 56, 64}));
    }
  }
  // Those of different sizes among 20 convolutions: the stem, one of the first stage, and of each
  // other stage one with a stride, one without, and the shortcut.
  EXPECT_EQ(convolutions, 11);
  EXPECT_EQ(poolings, 1);
}

}  // namespace
}  // namespace trireme::testing
