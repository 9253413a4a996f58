// Convolutional networks small enough to train on every grid in a test, pictures for them, and the
// fixtures of tests that look at a model or a block alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/comm/dry_rank.h"
#include "trireme/nn/block_run.h"
#include "trireme/ops/elementwise.h"
#include "trireme/parallel/trainer_step.h"

#include "models/mobilenet_v2/mobilenet_v2.h"
#include "models/resnet/resnet.h"
#include "support/ops_testing.h"

namespace trireme::testing {

// It has a block of each kind: without expansion, with a stride, and with a residual.
inline models::MobileNetV2Config small_mobilenet() {
  models::MobileNetV2Config config;
  config.classes = 7;
  config.image = 12;
  config.stem = models::MobileNetV2Config::Stem::kCifar;
  config.width_multiple = 0.5;
  config.dropout = 0.0;
  config.label_smoothing = 0.1;
  config.stages = {{1, 16, 1, 1}, {6, 24, 2, 2}, {4, 32, 2, 2}};
  return config;
}

// A ResNet with the published stem. It has a block of each kind: with a shortcut that only widens
// (of bottlenecks), with one that also shrinks, and without.
inline models::ResNetConfig small_resnet(bool bottlenecks) {
  models::ResNetConfig config;
  config.classes = 7;
  config.image = 24;
  config.label_smoothing = 0.1;
  config.width = 8;
  config.bottlenecks = bottlenecks;
  config.stages = {2, 2};
  return config;
}

// Micro-batch `number` of `samples` pictures, which depend on the sample alone.
inline nn::MicroBatch make_picture_batch(ops::Context& ctx,
                                         const models::ConvolutionalConfig& model,
                                         std::int64_t samples, int number, bool training) {
  const std::int64_t elements = model.image * model.image * 3;
  Values pixels;
  std::vector<std::int64_t> numbers;
  std::vector<std::int32_t> targets;
  for (std::int64_t b = 0; b < samples; ++b) {
    const std::int64_t sample = number * samples + b;
    const Values one = random_values(100 + static_cast<std::uint64_t>(sample), elements);
    pixels.insert(pixels.end(), one.begin(), one.end());
    numbers.push_back(sample);
    targets.push_back(static_cast<std::int32_t>(sample * 5 % model.classes));
  }
  nn::MicroBatch batch;
  batch.batch = samples;
  batch.length = 1;
  batch.training = training;
  batch.fields.set(nn::kPixels,
                   make_tensor(ctx, pixels, {samples, model.image, model.image, 3}, DType::kF32));
  batch.fields.set(nn::kTargets, make_tensor(ctx, targets));
  batch.samples = make_tensor(ctx, numbers);
  batch.target_count = samples;
  batch.loss_sum = make_tensor(ctx, 0.0);
  batch.correct = make_tensor(ctx, std::vector<std::int64_t>{0, 0});
  return batch;
}

// A model on this process alone.
class Alone : public ::testing::Test {
 protected:
  ops::Context ctx_ = ops::make_cpu_context(1);
  DryRank rank_{{}};
  ProcessGrid grid_{rank_, {1, 1, 1}};
};

// Expects that every parameter and every row of a state of the stage occurs once in `tensors`, and
// returns the names there.
inline std::set<std::string> names_of_all(const parallel::Stage& stage,
                                          const std::vector<models::ForeignTensor>& tensors) {
  const auto row_of = [](const std::string& state, std::int64_t row) {
    return state + " " + std::to_string(row);
  };
  std::multiset<std::string> ours, listed;
  for (const nn::Parameter* parameter : stage.parameters()) ours.insert(parameter->name());
  for (const nn::State* state : stage.states().states()) {
    ours.insert({row_of(state->name(), 0), row_of(state->name(), 1)});
  }
  std::set<std::string> names;
  for (const models::ForeignTensor& tensor : tensors) {
    const models::ForeignPart& part = tensor.parts.front();
    const std::string name = part.ours.substr(part.ours.find('/') + 1);
    const bool row = part.ours.starts_with("state/");
    listed.insert(row ? row_of(name, part.start.front()) : name);
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    EXPECT_EQ(tensor.parts.size(), 1u) << tensor.name;
    EXPECT_EQ(tensor.shape.elements(), part.extent.elements()) << tensor.name;
  }
  EXPECT_EQ(listed, ours);
  return names;
}

// Blocks alone, without a loss.
class BlockAlone : public Alone {
 protected:
  // Builds the block of that name, and pictures for the model.
  void build_block(const nn::ModelPlan& plan, const models::ConvolutionalConfig& config,
                   const std::string& name) {
    weights_.clear();
    const auto found = std::ranges::find(plan.blocks, name, &nn::BlockPlan::name);
    nn::BuildContext context{.grid = grid_};
    block_ = found->build(context);
    block_->parameters().form_groups(name);
    for (const auto& group : block_->parameters().groups()) {
      group->materialize(ctx_, {}, make_zeros(ctx_, {group->elements()}, DType::kF32));
      group->draw_initial_values(ctx_, 1);
    }
    std::vector<nn::State*> states;
    for (const auto& state : block_->states().states()) states.push_back(state.get());
    states_ = nn::StageStates(ctx_, states);
    states_.hold_proposals(ctx_, 1);
    batch_ = make_picture_batch(ctx_, config, kSamples, 0, true);
  }
  // The sum of the output times `weights_`, and, if wanted, its gradients.
  double loss(const Tensor& x, Tensor* dx = nullptr) {
    nn::Tape tape(ctx_, dx != nullptr);
    const nn::Value in = tape.input(x, true);
    const nn::Value out = block_->forward(tape, batch_, {in}).front();
    if (weights_.empty()) weights_ = random_values(9, out.tensor().elements());
    if (dx != nullptr) {
      tape.backward({out.slot()}, {make_tensor(ctx_, weights_, out.shape(), DType::kF32)});
      *dx = tape.take_gradient(in.slot());
    }
    return inner_product(values_of(out.tensor()), weights_);
  }
  // The slope of the loss along a gradient, over the gradient's length.
  double slope(const Tensor& x, const Tensor& of, const Values& gradient) {
    const double length = std::sqrt(inner_product(gradient, gradient)), epsilon = 2e-3;
    const Values saved = values_of(of);
    const auto at = [&](double distance) {
      for (std::size_t i = 0; i < saved.size(); ++i) {
        of.data<float>()[i] = static_cast<float>(saved[i] + distance * gradient[i] / length);
      }
      return loss(x);
    };
    const double result = (at(epsilon) - at(-epsilon)) / (2 * epsilon) / length;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      of.data<float>()[i] = static_cast<float>(saved[i]);
    }
    return result;
  }
  void expect_gradients(const Tensor& x, const std::string& what) {
    // Norms that cut much: where nothing is cut, the norm after one takes back its weights.
    for (const auto& parameter : block_->parameters().parameters()) {
      if (!parameter->name().ends_with("norm.weight")) continue;
      for (float& value : parameter->weight().span<float>()) value *= 6.0f;
    }
    Tensor dx;
    loss(x, &dx);
    EXPECT_NEAR(slope(x, x, values_of(dx)), 1.0, 0.03) << "input of " << what;
    for (const auto& parameter : block_->parameters().parameters()) {
      EXPECT_NEAR(slope(x, parameter->weight(), values_of(parameter->gradient())), 1.0, 0.03)
          << parameter->name();
    }
  }

  static constexpr std::int64_t kSamples = 3;
  std::unique_ptr<nn::Block> block_;
  nn::StageStates states_;
  nn::MicroBatch batch_;
  Values weights_;
};

}  // namespace trireme::testing
