// The layers of models on pictures: gradients of a small network against central differences of its
// loss, and its running statistics, which every grid must have alike.
#include "trireme/nn/pictures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/nn/host_micro_batch.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/train/checkpoint_tensors.h"

#include "support/mpi_test.h"
#include "support/ops_testing.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t kMicro = 6, kSize = 8, kClasses = 5;
constexpr float kMomentum = 0.1f;
// Cuts so much that the loss depends on the weights of a norm that another one follows.
constexpr ops::Clamp kCuts = {0.0f, 0.5f};

nn::LayerContext layer(nn::BuildContext& build, nn::ParameterSet& parameters,
                       const std::string& name) {
  return {parameters, {&build.grid.comm(Axis::kTensor), false}, name};
}

// A convolution, its batch norm and what follows.
struct Unit {
  Unit(const nn::LayerContext& context, nn::StateSet& states, nn::Convolution::Options options,
       const ops::Clamp& clamp)
      : convolution(context.child("convolution"), with_deviation(options)),
        norm(context.child("norm"), states,
             {.channels = options.out, .momentum = kMomentum, .clamp = clamp}) {}
  static nn::Convolution::Options with_deviation(nn::Convolution::Options options) {
    options.deviation = nn::Convolution::deviation_of(options.kernel, options.out, options.groups);
    return options;
  }
  nn::Value forward(nn::Tape& tape, const nn::MicroBatch& batch, const nn::Value& x) const {
    return norm.forward(tape, batch, convolution.forward(tape, x));
  }

  nn::Convolution convolution;
  nn::BatchNorm norm;
};

class Body : public nn::Block {
 public:
  explicit Body(nn::BuildContext& build)
      : stem_(layer(build, parameters_, "stem"), states_, {3, 16, 3, 2, 1}, ops::kRelu6),
        expand_(layer(build, parameters_, "expand"), states_, {16, 24}, kCuts),
        depthwise_(layer(build, parameters_, "depthwise"), states_, {24, 24, 3, 1, 1, 24}, kCuts),
        project_(layer(build, parameters_, "project"), states_, {24, 16}, ops::kNoClamp),
        last_(layer(build, parameters_, "last"), states_, {16, 16, 3, 1, 1}, ops::kRelu) {}

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values) const override {
    const nn::Value in = tape.input(batch.field(nn::kPixels), false);
    nn::Value x = stem_.forward(tape, batch, in);
    const nn::Value inside = depthwise_.forward(tape, batch, expand_.forward(tape, batch, x));
    // The residual paths of MobileNetV2 and of ResNet.
    x = project_.norm.forward(tape, batch, project_.convolution.forward(tape, inside), x);
    x = last_.norm.forward(tape, batch, last_.convolution.forward(tape, x), x);
    return {nn::max_pooling(tape, nn::clamp(tape, x, {0.0f, 3.0f}), 3, 1, 1)};
  }

 private:
  Unit stem_, expand_, depthwise_, project_, last_;
};

class Head : public nn::Block {
 public:
  explicit Head(nn::BuildContext& build)
      : classes_(layer(build, parameters_, "head"),
                 {nn::ColumnParallelLinear::split_part(layer(build, parameters_, "head"), "classes",
                                                       kClasses)},
                 16, true, 0.5f) {}
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    nn::classification_loss(tape, batch,
                            classes_.forward(tape, nn::global_average_pooling(tape, in[0])), 0.1f);
    return {};
  }
  bool is_loss() const override { return true; }

 private:
  nn::ColumnParallelLinear classes_;
};

nn::ModelPlan plan() {
  nn::ModelPlan plan;
  plan.blocks = {{.name = "body",
                  .cost = 1.0,
                  .build = [](nn::BuildContext& build) { return std::make_unique<Body>(build); }},
                 {.name = "head", .cost = 1.0, .loss = true, .build = [](nn::BuildContext& build) {
                    return std::make_unique<Head>(build);
                  }}};
  plan.width = 16;
  return plan;
}

// What is in a picture depends on the sample alone.
nn::MicroBatch make_pictures(ops::Context& ctx, int number, bool training) {
  nn::HostMicroBatch host(ctx, kMicro, 1);
  const auto samples = host.samples.span<std::int64_t>();
  const auto targets = host.add(ctx, nn::kTargets, {kMicro}, DType::kI32).span<std::int32_t>();
  auto pixels = host.add(ctx, nn::kPixels, {kMicro, kSize, kSize, 3}, DType::kF32).data<float>();
  for (std::size_t b = 0; b < kMicro; ++b) {
    samples[b] = number * kMicro + static_cast<std::int64_t>(b);
    targets[b] = static_cast<std::int32_t>(samples[b] * 7 % kClasses);
    const auto seed = static_cast<std::uint64_t>(100 + samples[b]);
    for (const double value : random_values(seed, kSize * kSize * 3)) {
      *pixels++ = static_cast<float>(value);
    }
  }
  nn::MicroBatch batch = host.to_device(ctx, kMicro, training);
  batch.correct = make_tensor(ctx, std::vector<std::int64_t>{0, 0});
  return batch;
}

class Training {
 public:
  // On this rank alone, or on all ranks as replicas.
  explicit Training(int replicas, const parallel::StepOptions& options = {})
      : grid_(runtime(), {replicas, 1, 1}, ranks(replicas)), step_(ctx_, grid_, plan(), options) {}

  // A step of four micro-batches.
  parallel::StepResult train(int number) {
    std::vector<nn::MicroBatch> mine;
    const auto share = parallel::share_of(4, grid_.extent(kDataAxes), grid_.index(kDataAxes));
    for (int i = 0; i < share.count; ++i) {
      mine.push_back(make_pictures(ctx_, 4 * number + share.first + i, true));
    }
    const auto result = step_.train(mine, number + 1, 0.01f, 3);
    correct_ = 0;
    for (const nn::MicroBatch& batch : mine) correct_ += batch.correct.data<std::int64_t>()[1];
    return result;
  }
  double evaluate() {
    return parallel::evaluate(step_.executor(), 1,
                              [&](int) { return make_pictures(ctx_, 40, false); })
        .loss_sum;
  }
  Values state(std::size_t i) const {
    return values_of(step_.stage().states().states()[i]->value());
  }
  Values all_states() const {
    Values all;
    for (std::size_t i = 0; i < step_.stage().states().states().size(); ++i) {
      const Values one = state(i);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  parallel::TrainerStep& step() { return step_; }
  ops::Context& ctx() { return ctx_; }
  std::int64_t among_five() const { return correct_; }

 private:
  static std::vector<int> ranks(int replicas) {
    if (replicas == 1) return {runtime().rank()};
    std::vector<int> all(static_cast<std::size_t>(replicas));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid grid_;
  parallel::TrainerStep step_;
  std::int64_t correct_ = 0;
};

bool alone() {
  return runtime().size() == 1;
}

TEST(Pictures, GradientsEqualCentralDifferences) {
  if (!alone()) GTEST_SKIP() << "for one rank";
  for (const bool training : {true, false}) {
    Training model(1);
    const auto batches = [&] {
      std::vector<nn::MicroBatch> two;
      for (int i = 0; i < 2; ++i) two.push_back(make_pictures(model.ctx(), i, training));
      return two;
    };
    const auto loss = [&] { return model.step().accumulate(batches()).loss * 2 * kMicro; };
    loss();
    for (const nn::Parameter* parameter : model.step().stage().parameters()) {
      loss();
      const auto span = parameter->gradient().span<float>();
      const std::vector<float> gradient(span.begin(), span.end());
      const auto weights = parameter->weight().span<float>();
      const std::vector<float> saved(weights.begin(), weights.end());
      double squares = 0.0;
      for (const float g : gradient) squares += double{g} * double{g};
      ASSERT_GT(squares, 0.0) << parameter->name();
      const double length = std::sqrt(squares), epsilon = 1e-3;
      const auto at = [&](double distance) {
        for (std::size_t i = 0; i < saved.size(); ++i) {
          weights[i] = saved[i] + static_cast<float>(distance * double{gradient[i]} / length);
        }
        return loss();
      };
      const double slope = (at(epsilon) - at(-epsilon)) / (2 * epsilon);
      std::copy(saved.begin(), saved.end(), weights.begin());
      // With running moments activations are small, so more of them are near where they are cut.
      EXPECT_NEAR(slope / length, 1.0, training ? 0.03 : 0.1)
          << parameter->name() << ", gradient norm " << length << ", training " << training;
    }
  }
}

// The running moments of the first batch norm after two steps, in double, one micro-batch after the
// other.
TEST(Pictures, RunningMomentsAreThoseOfOneMicroBatchAfterTheOther) {
  Training model(runtime().size());
  ops::Context& ctx = model.ctx();
  Values mean(16, 0.0), variance(16, 1.0);
  for (int step = 0; step < 2; ++step) {
    const nn::Parameter* weight = model.step().stage().parameters().front();
    ASSERT_EQ(weight->name(), "stem.convolution.weight");
    for (int m = 0; m < 4; ++m) {
      const ops::ConvolutionShape shape{kMicro, kSize, kSize, 3, 16, 3, 3, 2, 1, 1};
      const Tensor y = ctx.allocate(shape.output(), DType::kF32);
      const nn::MicroBatch batch = make_pictures(ctx, 4 * step + m, true);
      ops::convolution(ctx, shape, batch.field(nn::kPixels), weight->weight(), {}, y);
      const Values values = values_of(y);
      const auto rows = static_cast<double>(values.size() / 16);
      for (std::size_t c = 0; c < 16; ++c) {
        double sum = 0.0, squares = 0.0;
        for (std::size_t i = c; i < values.size(); i += 16) sum += values[i] / rows;
        for (std::size_t i = c; i < values.size(); i += 16) {
          squares += (values[i] - sum) * (values[i] - sum);
        }
        mean[c] = 0.9 * mean[c] + 0.1 * sum;
        variance[c] = 0.9 * variance[c] + 0.1 * squares / (rows - 1.0);
      }
    }
    model.train(step);
  }
  EXPECT_EQ(model.step().stage().states().states()[0]->name(), "stem.norm.running");
  Values expected = mean;
  expected.insert(expected.end(), variance.begin(), variance.end());
  EXPECT_LT(relative_error(model.state(0), expected), 1e-5);
}

// The same micro-batches on one rank and on all of them as replicas.
TEST(Pictures, EveryGridHasTheSameLossesAndStates) {
  Training one(1), all(runtime().size());
  for (int step = 0; step < 3; ++step) {
    const parallel::StepResult of_one = one.train(step), of_all = all.train(step);
    EXPECT_NEAR(of_all.loss, of_one.loss, 2e-5 * of_one.loss);
    EXPECT_NEAR(of_all.gradient_norm, of_one.gradient_norm, 1e-4 * of_one.gradient_norm);
    EXPECT_LT(relative_error(all.all_states(), one.all_states()), 1e-4);
  }
  // Every replica has the same bits.
  const Values states = all.all_states();
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    Values over_ranks = states;
    runtime().world().all_reduce_host(std::span<double>(over_ranks), op);
    EXPECT_EQ(over_ranks, states);
  }
}

TEST(Pictures, RecomputationProposesOnceAndChangesNoBit) {
  std::string bits;
  for (const auto recompute :
       {parallel::Recompute::kNone, parallel::Recompute::kSelective, parallel::Recompute::kFull}) {
    parallel::StepOptions options;
    options.runs.recompute = recompute;
    Training model(runtime().size(), options);
    std::string now;
    for (int step = 0; step < 2; ++step) {
      const double loss = model.train(step).loss;
      now.append(reinterpret_cast<const char*>(&loss), sizeof(loss));
    }
    for (const nn::State* state : model.step().stage().states().states()) {
      now += bits_of(state->value());
    }
    for (const nn::FlatGroup* group : model.step().stage().groups())
      now += bits_of(group->master());
    EXPECT_EQ(model.among_five(), kMicro * 4 / runtime().size());  // there are five classes
    if (!bits.empty()) {
      EXPECT_TRUE(now == bits);
    }
    bits = now;
  }
}

TEST(Pictures, EvaluationUsesTheRunningMomentsAndProposesNothing) {
  Training model(runtime().size());
  model.train(0);
  const Values before = model.all_states();
  const double loss = model.evaluate();
  EXPECT_EQ(model.evaluate(), loss);
  EXPECT_EQ(model.all_states(), before);
  // A step after it is that of a model that was not evaluated.
  Training other(runtime().size());
  other.train(0);
  model.train(1);
  other.train(1);
  EXPECT_EQ(model.all_states(), other.all_states());
  EXPECT_NE(model.evaluate(), loss);
}

// It would go on with other moments.
TEST(Pictures, ACheckpointOfAModelWithStatesIsRefused) {
  Training model(1);
  try {
    checkpoint_slices(model.step().stage(), nullptr, false);
    FAIL() << "the states would be lost";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(),
                 "a checkpoint does not hold the running moments of batch norms, so it cannot hold "
                 "this model");
  }
}

TEST(Pictures, ASkippedStepChangesNoState) {
  Training model(runtime().size());
  model.train(0);
  const Values before = model.all_states();
  const nn::Parameter* last = model.step().stage().parameters().back();
  const auto weights = last->weight().span<float>();
  const float saved = weights[0];
  weights[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(model.train(1).finite);
  EXPECT_EQ(model.all_states(), before);
  // What was proposed in it is gone.
  weights[0] = saved;
  Training other(runtime().size());
  other.train(0);
  model.train(2);
  other.train(2);
  EXPECT_EQ(model.all_states(), other.all_states());
}

}  // namespace
}  // namespace trireme::testing
