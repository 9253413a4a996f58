#include "support/picture_model.h"

#include <array>
#include <numeric>

#include "trireme/nn/pictures.h"
#include "trireme/ops/elementwise.h"

#include "support/mpi_test.h"

namespace trireme::testing {
namespace {

// Cuts so much that the loss depends on the weights of a norm that another one follows.
constexpr ops::Clamp kCuts = {0.0f, 0.5f};

nn::LayerContext layer(nn::BuildContext& build, nn::ParameterSet& parameters,
                       const std::string& name) {
  return {parameters, {&build.grid.comm(Axis::kTensor), false}, name};
}

// The same elements in another shape.
nn::Value reshaped(nn::Tape& tape, const nn::Value& x, const Shape& shape) {
  return tape.record(x.tensor().reshape(shape), {x},
                     [slot = x.slot(), from = x.shape()](nn::Tape& t, const Tensor& dy) {
                       t.add_gradient(slot, dy.reshape(from));
                     });
}

// A convolution, its batch norm and what follows.
struct Unit {
  Unit(const nn::LayerContext& context, nn::StateSet& states, nn::Convolution::Options options,
       const ops::Clamp& clamp, const std::shared_ptr<Communicator>& replicas)
      : convolution(context.child("convolution"), with_deviation(options)),
        norm(context.child("norm"), states,
             {.channels = options.out, .clamp = clamp, .replicas = replicas}) {}
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

class Stem : public nn::Block {
 public:
  Stem(nn::BuildContext& build, const std::shared_ptr<Communicator>& replicas)
      : stem_(layer(build, parameters_, "stem"), states_, {3, 16, 3, 2, 1}, ops::kRelu6, replicas) {
  }
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values) const override {
    const DType compute = parameters_.groups().front()->parameters().front()->weight().dtype();
    const nn::Value in = tape.input(pictures_of(tape.context(), batch, compute), false);
    return {stem_.forward(tape, batch, in)};
  }

 private:
  Unit stem_;
};

// Hands on what the residual path needs too.
class Expanding : public nn::Block {
 public:
  Expanding(nn::BuildContext& build, const std::shared_ptr<Communicator>& replicas)
      : expand_(layer(build, parameters_, "expand"), states_, {16, 24}, kCuts, replicas),
        depthwise_(layer(build, parameters_, "depthwise"), states_, {24, 24, 3, 1, 1, 24}, kCuts,
                   replicas) {}
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    const nn::Value expanded = expand_.convolution.forward(tape, in[0]);
    return {in[0],
            depthwise_.norm.forward(tape, batch, depthwise_.convolution, expanded, &expand_.norm)};
  }

 private:
  Unit expand_, depthwise_;
};

class Residual : public nn::Block {
 public:
  Residual(nn::BuildContext& build, const std::shared_ptr<Communicator>& replicas)
      : project_(layer(build, parameters_, "project"), states_, {24, 16}, ops::kNoClamp, replicas),
        last_(layer(build, parameters_, "last"), states_, {16, 16, 3, 1, 1}, ops::kRelu, replicas) {
  }
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    nn::Value x =
        project_.norm.forward(tape, batch, project_.convolution.forward(tape, in[1]), in[0]);
    x = last_.norm.forward(tape, batch, last_.convolution.forward(tape, x), x);
    return {nn::max_pooling(tape, nn::clamp(tape, x, {0.0f, 3.0f}), 3, 1, 1)};
  }

 private:
  Unit project_, last_;
};

class Classes : public nn::Block {
 public:
  explicit Classes(nn::BuildContext& build)
      : classes_(layer(build, parameters_, "head.classes"),
                 {.in = 16, .out = kPictureClasses, .kernel = 1, .bias = true, .deviation = 0.5f}) {
  }
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    const nn::Value pooled = nn::global_average_pooling(tape, in[0]);
    const std::int64_t n = pooled.shape()[0];
    const nn::Value logits = classes_.forward(tape, reshaped(tape, pooled, {n, 1, 1, 16}));
    nn::classification_loss(tape, batch, reshaped(tape, logits, {n, kPictureClasses}), 0.1f);
    return {};
  }
  bool is_loss() const override { return true; }

 private:
  nn::Convolution classes_;
};

// A block that returns tensors of these shapes for each picture.
template <class Block>
nn::BlockPlan with_norms(const char* name, bool sync,
                         std::vector<std::array<std::int64_t, 3>> returned) {
  nn::BlockPlan made{.name = name,
                     .flops = 1e9,
                     .build =
                         [sync](nn::BuildContext& build) {
                           return std::make_unique<Block>(build, sync ? build.replicas() : nullptr);
                         },
                     .collective = sync,
                     .together = sync};
  made.boundary = [returned](std::int64_t batch, std::int64_t, const nn::TensorParallel&) {
    std::vector<nn::BoundaryTensor> tensors;
    for (const auto& [h, w, c] : returned) tensors.push_back({{batch, h, w, c}});
    return tensors;
  };
  return made;
}

std::vector<int> ranks_of(const GridShape& shape) {
  if (shape.ranks() == 1) return {runtime().rank()};
  std::vector<int> all(static_cast<std::size_t>(shape.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

Tensor pictures_of(ops::Context& ctx, const nn::MicroBatch& batch, DType dtype) {
  const Tensor& pixels = batch.field(nn::kPixels);
  if (dtype == pixels.dtype()) return pixels;
  const Tensor cast = ctx.allocate(pixels.shape(), dtype);
  ops::cast(ctx, pixels, cast);
  return cast;
}

nn::ModelPlan picture_plan(bool sync) {
  nn::ModelPlan plan;
  plan.blocks = {with_norms<Stem>("stem", sync, {{4, 4, 16}}),
                 with_norms<Expanding>("expanding", sync, {{4, 4, 16}, {4, 4, 24}}),
                 with_norms<Residual>("residual", sync, {{4, 4, 16}}),
                 {.name = "head", .flops = 1e9, .loss = true, .build = [](nn::BuildContext& build) {
                    return std::make_unique<Classes>(build);
                  }}};
  return plan;
}

nn::HostMicroBatch undefined_pictures(ops::Context& ctx, std::int64_t micro, std::int64_t length) {
  nn::HostMicroBatch host(ctx, micro, length);
  host.add(ctx, nn::kTargets, {micro}, DType::kI32);
  host.add(ctx, nn::kPixels, {micro, kPictureSize, kPictureSize, 3}, DType::kF32);
  return host;
}

nn::MicroBatch make_pictures(ops::Context& ctx, int number, bool training, int micro) {
  const nn::HostMicroBatch host = undefined_pictures(ctx, micro, 1);
  const auto targets = host.fields.find(nn::kTargets).span<std::int32_t>();
  float* pixel = host.fields.find(nn::kPixels).data<float>();
  for (int b = 0; b < micro; ++b) {
    const std::int64_t sample = number * micro + b;
    host.samples.data<std::int64_t>()[b] = sample;
    targets[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(sample * 7 % kPictureClasses);
    const auto seed = static_cast<std::uint64_t>(100 + sample);
    for (const double value : random_values(seed, kPictureSize * kPictureSize * 3)) {
      *pixel++ = static_cast<float>(value);
    }
  }
  nn::MicroBatch batch = host.to_device(ctx, micro, training);
  batch.correct = make_tensor(ctx, std::vector<std::int64_t>{0, 0});
  return batch;
}

PictureTraining::PictureTraining(const GridShape& shape, const parallel::StepOptions& options,
                                 const nn::ModelPlan& plan, ops::Context ctx)
    : ctx_(std::move(ctx)),
      grid_(runtime(), shape, ranks_of(shape)),
      step_(std::make_unique<parallel::TrainerStep>(ctx_, grid_, plan, options)) {}

parallel::StepResult PictureTraining::train(int number, int micro_batches, int micro) {
  std::vector<nn::MicroBatch> mine;
  const parallel::WorkSplit& known = step_->options().work;
  const parallel::WorkSplit work =
      known.known() ? known : parallel::WorkSplit::even(micro_batches, grid_.extent(kDataAxes));
  for (const parallel::Micro& one : work.of(grid_.index(kDataAxes))) {
    mine.push_back(make_pictures(ctx_, micro_batches * number + one.number, true, micro));
  }
  const auto result = step_->train(mine, number + 1, 0.01f, 3);
  among_five_ = 0;
  if (ctx_.device.kind != DeviceKind::kCpu) return result;
  for (const nn::MicroBatch& batch : mine) among_five_ += batch.correct.data<std::int64_t>()[1];
  return result;
}

double PictureTraining::evaluate() {
  return parallel::evaluate(step_->executor(), 1,
                            [&](int) { return make_pictures(ctx_, 40, false); })
      .loss_sum;
}

std::map<std::string, Values> PictureTraining::states() const {
  std::map<std::string, Values> all;
  for (const nn::State* state : stage().states().states()) {
    all[state->name()] = values_of(state->value());
  }
  return all;
}

std::map<std::string, std::string> PictureTraining::state_bits() const {
  std::map<std::string, std::string> all;
  for (const nn::State* state : stage().states().states()) {
    all[state->name()] = bits_of(state->value());
  }
  return all;
}

std::string PictureTraining::bits() const {
  std::string all;
  for (const auto& [name, bits] : state_bits()) all += bits;
  for (const nn::FlatGroup* group : stage().groups()) all += bits_of(group->master());
  return all;
}

}  // namespace trireme::testing
