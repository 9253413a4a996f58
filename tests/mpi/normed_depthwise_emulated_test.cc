// A depthwise convolution between batch norms on an emulated GPU, whose kernels take the norms'
// work, beside the same layers one after the other.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/nn/pictures.h"
#include "trireme/ops/normed_depthwise.h"
#include "trireme/tensor/copy.h"

#include "support/mpi_test.h"
#include "support/ops_testing.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t kBatch = 3, kSide = 9, kChannels = 20;
const Shape kPictures = {kBatch, kSide, kSide, kChannels};

struct Contributions : nn::GradientListener {
  void contributed(const nn::Parameter& parameter) override { names.insert(parameter.name()); }
  std::multiset<std::string> names;
};

struct Choices {
  DType dtype = DType::kF32;
  std::int64_t stride = 1;
  bool before = true;   // whether there is a norm before the convolution
  bool at_once = true;  // BatchNorm::forward takes the convolution, too
  bool training = true;
  bool input = true;    // the gradient of the input is wanted
  bool defers = false;  // weight gradients come later
  std::string frozen = {};
};

// What a forward and its backward leave, by name.
using Left = std::map<std::string, Tensor>;

class NormedDepthwiseLayer : public ::testing::Test {
 protected:
  nn::LayerContext layer(nn::ParameterSet& parameters, const std::string& name) {
    return {parameters, {&grid_.comm(Axis::kTensor), false}, name};
  }
  Tensor random(std::uint64_t seed, const Shape& shape, DType dtype, double scale = 1.0) {
    return make_tensor(ctx_, random_values(seed, shape.elements(), scale), shape, dtype);
  }
  void materialize(nn::ParameterSet& parameters, const Choices& choices) {
    if (!choices.frozen.empty()) parameters.freeze(NamePatterns({choices.frozen}));
    parameters.form_groups("layer");
    for (const auto& group : parameters.groups()) {
      group->materialize(
          ctx_, {.compute = choices.dtype, .trains = group->trains()},
          group->trains() ? make_zeros(ctx_, {group->extent()}, DType::kF32) : Tensor());
    }
    std::uint64_t seed = 10;
    for (const auto& parameter : parameters.parameters()) {
      const Tensor& weight = parameter->weight();
      copy(random(++seed, weight.shape(), choices.dtype, 0.7), weight, ctx_.stream);
    }
  }

  Left run(const Choices& choices) {
    nn::ParameterSet parameters;
    nn::StateSet states;
    const nn::BatchNorm::Options norm{.channels = kChannels, .clamp = {-0.3f, 0.9f}};
    const nn::BatchNorm before(layer(parameters, "before"), states, norm);
    const nn::Convolution convolution(layer(parameters, "convolution"), {.in = kChannels,
                                                                         .out = kChannels,
                                                                         .kernel = 3,
                                                                         .stride = choices.stride,
                                                                         .padding = 1,
                                                                         .groups = kChannels});
    const nn::BatchNorm after(layer(parameters, "after"), states, norm);
    materialize(parameters, choices);
    std::vector<nn::State*> all;
    for (const auto& state : states.states()) all.push_back(state.get());
    nn::StageStates memory(ctx_, all);
    memory.hold_proposals(ctx_, 1);

    Contributions contributions;
    nn::Tape tape(ctx_, true, &contributions);
    nn::MicroBatch batch;
    batch.batch = kBatch;
    batch.training = choices.training;
    const nn::Value x = tape.input(random(1, kPictures, choices.dtype, 2.0), choices.input);
    nn::Value y;
    if (choices.at_once) {
      y = after.forward(tape, batch, convolution, x, choices.before ? &before : nullptr);
    } else {
      const nn::Value in = choices.before ? before.forward(tape, batch, x) : x;
      y = after.forward(tape, batch, convolution.forward(tape, in));
    }
    Left left = {{"y", y.tensor()}};
    tape.backward({y.slot()}, {random(2, y.shape(), choices.dtype)}, choices.defers);
    if (choices.defers) {
      // Where weights are sharded there are none at that time.
      for (const auto& parameter : parameters.parameters()) {
        copy(make_output(ctx_, parameter->weight().shape(), choices.dtype), parameter->weight(),
             ctx_.stream);
      }
      tape.backward_weights();
    }
    if (choices.input) left["dx"] = tape.take_gradient(x.slot());
    if (choices.training) left["proposed"] = memory.proposed();
    for (const auto& parameter : parameters.parameters()) {
      if (!choices.before && parameter->name().starts_with("before")) continue;
      EXPECT_EQ(contributions.names.count(parameter->name()), parameter->trains() ? 1u : 0u)
          << parameter->name();
      if (parameter->trains()) left[parameter->name()] = parameter->gradient();
    }
    return left;
  }

  ops::Context ctx_ = make_test_context();
  ProcessGrid grid_{trireme::testing::runtime(), {1, 1, 1}, {trireme::testing::runtime().rank()}};
};

TEST_F(NormedDepthwiseLayer, IsThatOfOneLayerAfterTheOther) {
  ASSERT_TRUE(ops::depthwise_takes_norms(
      ctx_, {kBatch, kSide, kSide, kChannels, kChannels, 3, 3, 1, 1, kChannels}));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const double tolerance = dtype == DType::kF32 ? 2e-5 : 1e-2;
    for (const std::int64_t stride : {1, 2}) {
      for (const bool before : {true, false}) {
        for (const bool training : {true, false}) {
          Choices choices{.dtype = dtype, .stride = stride, .before = before};
          choices.training = training;
          const Left at_once = run(choices);
          choices.at_once = false;
          for (const auto& [name, tensor] : run(choices)) {
            EXPECT_LT(relative_error(values_of(at_once.at(name)), values_of(tensor)), tolerance)
                << name << " in " << name_of(dtype) << ", stride " << stride << ", before "
                << before << ", training " << training;
          }
        }
      }
    }
  }
}

// A pipeline that defers weight gradients, and frozen parameters, change no bit of the others.
TEST_F(NormedDepthwiseLayer, GradientsHaveTheSameBitsHoweverTheyAreMade) {
  for (const std::int64_t stride : {1, 2}) {
    const Left all = run({.stride = stride});
    const auto expect_same = [&](const Choices& choices, std::size_t tensors) {
      const Left some = run(choices);
      EXPECT_EQ(some.size(), tensors) << choices.frozen;
      for (const auto& [name, tensor] : some) {
        EXPECT_TRUE(bits_of(tensor) == bits_of(all.at(name))) << name << ", " << choices.frozen;
      }
    };
    EXPECT_EQ(all.size(), 8u);
    expect_same({.stride = stride, .defers = true}, 8);
    expect_same({.stride = stride, .input = false}, 7);
    expect_same({.stride = stride, .frozen = "convolution.weight"}, 7);
    expect_same({.stride = stride, .defers = true, .frozen = "convolution.weight"}, 7);
    expect_same({.stride = stride, .frozen = "before.*"}, 6);
    expect_same({.stride = stride, .input = false, .frozen = "before.*"}, 5);
    expect_same({.stride = stride, .input = false, .frozen = "convolution.weight"}, 6);
  }
}

}  // namespace
}  // namespace trireme::testing
