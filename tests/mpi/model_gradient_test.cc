// The gradient of the loss with respect to every parameter, against central differences of the
// loss. That the ops are right is shown in double precision by their own tests; this shows that the
// tape and the layers put them together rightly, so a tolerance of two percent is enough to tell.
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "trireme/nn/layers.h"
#include "trireme/ops/norm.h"

#include "support/decoder_choices.h"
#include "support/equality.h"
#include "support/mpi_test.h"
#include "support/ops_testing.h"

namespace trireme::testing {
namespace {

class ModelGradient : public ::testing::TestWithParam<const char*> {
 protected:
  double loss(parallel::TrainerStep& step) {
    const auto batches = make_batches(ctx_, shape_, 0, 2, false);
    return parallel::evaluate(step.executor(), 2,
                              [&](int i) { return batches[static_cast<std::size_t>(i)]; })
        .loss_sum;
  }

  BatchShape shape_;
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid grid_{trireme::testing::runtime(), {1, 1, 1}, {trireme::testing::runtime().rank()}};
};

TEST_P(ModelGradient, EqualsCentralDifferences) {
  const std::string name = GetParam();
  models::GptConfig model = models::gpt_preset(name == "gpt2" ? "test-gpt" : "test-llama");
  model.layers = 2;
  model.tied = name == "gpt2";
  for (const DecoderChoices& choices : kDecoderChoices) {
    if (name == choices.name) choices.apply(model);
  }
  model.layers = std::max<std::int64_t>(model.layers, model.window_layers.size());
  parallel::TrainerStep step(ctx_, grid_, models::gpt_plan(model), {});
  // Larger weights than a fresh model's, so that every gradient stands out from rounding.
  for (const nn::FlatGroup* group : step.stage().groups()) {
    for (float& value : group->master().span<float>()) value *= 4.0f;
  }
  step.accumulate(make_batches(ctx_, shape_, 0, 2, false));

  for (const nn::Parameter* parameter : step.stage().parameters()) {
    if (zero_in_exact_arithmetic(parameter->name(), model)) continue;
    const auto gradient = parameter->gradient().span<float>();
    // Along the gradient itself: the loss changes by its length, which stands out most.
    double squares = 0.0;
    for (const float g : gradient) squares += double{g} * g;
    ASSERT_GT(squares, 0.0) << parameter->name();
    const double length = std::sqrt(squares);
    const std::vector<float> saved(parameter->weight().span<float>().begin(),
                                   parameter->weight().span<float>().end());
    const double epsilon = 2e-3;
    const auto at = [&](double distance) {
      for (std::size_t i = 0; i < saved.size(); ++i) {
        parameter->weight().span<float>()[i] =
            saved[i] + static_cast<float>(distance * gradient[i] / length);
      }
      return loss(step);
    };
    const double slope = (at(epsilon) - at(-epsilon)) / (2 * epsilon);
    std::copy(saved.begin(), saved.end(), parameter->weight().span<float>().begin());
    EXPECT_NEAR(slope / length, 1.0, 0.02) << parameter->name() << ", gradient norm " << length;
  }
}

std::vector<const char*> decoders() {
  std::vector<const char*> names = {"gpt2", "llama"};
  for (const DecoderChoices& choices : kDecoderChoices) names.push_back(choices.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGradient, ::testing::ValuesIn(decoders()),
                         [](const auto& family) { return std::string(family.param); });

// Layers alone on a tape.
class Layers : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 6, kWidth = 16, kHidden = 24;

  Tensor random(std::uint64_t seed) {
    return make_tensor(ctx_, random_values(seed, kRows * kWidth), {kRows, kWidth}, DType::kF32);
  }
  nn::LayerContext layer(nn::ParameterSet& parameters) {
    return {parameters, {&grid_.comm(Axis::kTensor), false}, "layer"};
  }
  void materialize(nn::ParameterSet& parameters) {
    parameters.form_groups("layer");
    for (const auto& group : parameters.groups()) {
      group->materialize(ctx_, {}, ctx_.allocate({group->elements()}, DType::kF32));
      group->draw_initial_values(ctx_, 1);
    }
  }

  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid grid_{trireme::testing::runtime(), {1, 1, 1}, {trireme::testing::runtime().rank()}};
};

// x + norm(x): the gradient that goes past the norm is also the one that goes into it, and the
// caller's, so nothing may be added up in place.
TEST_F(Layers, ANormAddsToWhatGoesPastItAndSparesWhatOthersHold) {
  for (const nn::NormKind kind : {nn::NormKind::kLayer, nn::NormKind::kRms}) {
    nn::ParameterSet parameters;
    const nn::Norm norm(layer(parameters), kind, kWidth, true);
    materialize(parameters);
    const Tensor x = random(1), dy = random(2), dy_before = random(2);
    nn::Tape tape(ctx_, true);
    const nn::Value in = tape.input(x, true);
    tape.backward({nn::add(tape, in, norm.forward(tape, in)).slot()}, {dy});

    const nn::Parameter& weight = *parameters.parameters().front();
    const Tensor y = ctx_.allocate(x.shape(), DType::kF32),
                 dx = ctx_.allocate(x.shape(), DType::kF32);
    const Tensor mean = ctx_.allocate({kRows}, DType::kF32);
    const Tensor rstd = ctx_.allocate({kRows}, DType::kF32);
    const Tensor dweight = make_zeros(ctx_, {kWidth}, DType::kF32);
    if (kind == nn::NormKind::kLayer) {
      ops::layer_norm(ctx_, x, weight.weight(), Tensor(), 1e-5f, y, mean, rstd);
      ops::layer_norm_backward_input(ctx_, dy_before, x, weight.weight(), mean, rstd, dy_before,
                                     dx);
      ops::layer_norm_backward_weight(ctx_, dy_before, x, mean, rstd, dweight, Tensor());
    } else {
      ops::rms_norm(ctx_, x, weight.weight(), 1e-5f, y, rstd);
      ops::rms_norm_backward_input(ctx_, dy_before, x, weight.weight(), rstd, dy_before, dx);
      ops::rms_norm_backward_weight(ctx_, dy_before, x, rstd, dweight);
    }
    EXPECT_EQ(bits_of(tape.take_gradient(in.slot())), bits_of(dx));
    EXPECT_EQ(bits_of(weight.gradient()), bits_of(dweight));
    EXPECT_EQ(bits_of(dy), bits_of(dy_before));
  }
}

struct Contributions : nn::GradientListener {
  void contributed(const nn::Parameter& parameter) override { names.insert(parameter.name()); }
  std::multiset<std::string> names;
};

// The bias of up has its gradient from down's input gradient, and still counts with up's weight.
TEST_F(Layers, DeferredWeightGradientsOfAFeedForwardAreTheSame) {
  for (const auto activation : {nn::ActivationKind::kGelu, nn::ActivationKind::kSwiglu}) {
    std::vector<std::string> bits;
    for (const bool defer : {false, true}) {
      nn::ParameterSet parameters;
      const nn::Mlp mlp(layer(parameters), activation, kWidth, kHidden, true, 0.5f, 0.5f);
      materialize(parameters);
      Contributions contributions;
      nn::Tape tape(ctx_, true, &contributions);
      const nn::Value x = tape.input(random(1), true);
      tape.backward({mlp.forward(tape, x).slot()}, {random(2)}, defer);
      if (defer) {
        EXPECT_TRUE(contributions.names.empty());
        tape.backward_weights();
      }
      EXPECT_EQ(contributions.names.size(), parameters.parameters().size());
      std::string all = bits_of(tape.take_gradient(x.slot()));
      for (const auto& parameter : parameters.parameters()) {
        EXPECT_EQ(contributions.names.count(parameter->name()), 1u) << parameter->name();
        all += bits_of(parameter->gradient());
      }
      bits.push_back(all);
    }
    EXPECT_EQ(bits[0], bits[1]);
  }
}

}  // namespace
}  // namespace trireme::testing
