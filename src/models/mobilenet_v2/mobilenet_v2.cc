#include "models/mobilenet_v2/mobilenet_v2.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"

#include "models/keys.h"

namespace trireme::models {
namespace {

constexpr std::int64_t kStemChannels = 32, kHeadChannels = 1280;
constexpr std::int64_t kColours = 3;
constexpr float kClassifierDeviation = 0.01f;  // as torchvision has it

// Channels times the width multiple: a multiple of 8 that is at least 90 % of the product
// (_make_divisible of the paper's published code).
std::int64_t scaled(std::int64_t channels, double multiple) {
  constexpr std::int64_t kStep = 8;
  const double wanted = static_cast<double>(channels) * multiple;
  const std::int64_t nearest =
      std::max(kStep, static_cast<std::int64_t>(wanted + kStep / 2.0) / kStep * kStep);
  return static_cast<double>(nearest) < 0.9 * wanted ? nearest + kStep : nearest;
}

nn::LayerContext layer_of(nn::ParameterSet& parameters, const nn::BuildContext& build,
                          const std::string& name) {
  return {parameters, {&build.grid.comm(Axis::kTensor), false}, name};
}

std::shared_ptr<Communicator> sharing(const MobileNetV2Config& config, nn::BuildContext& build) {
  return config.sync ? build.replicas() : nullptr;
}

class PictureStem : public nn::Block {
 public:
  PictureStem(const MobileNetV2Config& config, const ConvolutionNorm::Sizes& sizes,
              nn::BuildContext& build)
      : layer_(layer_of(parameters_, build, "stem"), states_, sizes, ops::kRelu6,
               sharing(config, build)) {}

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values) const override {
    ops::Context& ctx = tape.context();
    const Tensor pixels = batch.field(nn::kPixels);  // (B, H, W, 3) fp32
    const DType compute = parameters_.parameters().front()->weight().dtype();
    Tensor in = pixels;
    if (compute != DType::kF32) {
      in = ctx.allocate(pixels.shape(), compute);
      ops::cast(ctx, pixels, in);
    }
    return {layer_.forward(tape, batch, tape.input(in, false))};
  }

 private:
  ConvolutionNorm layer_;
};

class InvertedResidualBlock : public nn::Block {
 public:
  InvertedResidualBlock(const MobileNetV2Config& config, const InvertedResidual& sizes,
                        nn::BuildContext& build, int number)
      : adds_(sizes.adds()) {
    const nn::LayerContext context = layer_of(parameters_, build, fmt::format("blocks.{}", number));
    const auto replicas = sharing(config, build);
    if (sizes.expands()) {
      expand_.emplace(context.child("expand"), states_, sizes.expand(), ops::kRelu6, replicas);
    }
    depthwise_.emplace(context.child("depthwise"), states_, sizes.depthwise(), ops::kRelu6,
                       replicas);
    project_.emplace(context.child("project"), states_, sizes.project(), ops::kNoClamp, replicas);
  }

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    nn::Value x = in[0];  // (B, H, W, C)
    if (expand_) x = expand_->forward(tape, batch, x);
    x = depthwise_->forward(tape, batch, x);
    if (adds_) return {project_->forward(tape, batch, x, in[0])};
    return {project_->forward(tape, batch, x)};
  }

 private:
  bool adds_;
  std::optional<ConvolutionNorm> expand_, depthwise_, project_;
};

class ClassifierHead : public nn::Block {
 public:
  ClassifierHead(const MobileNetV2Config& config, const MobileNetV2Sizes& sizes,
                 nn::BuildContext& build)
      : ClassifierHead(config, sizes, layer_of(parameters_, build, "head"),
                       sharing(config, build)) {}

  // Without targets it returns the logits (batch, classes), fp32.
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    nn::Value x = layer_.forward(tape, batch, in[0]);
    x = nn::global_average_pooling(tape, x);  // (B, C)
    x = nn::dropout(tape, parallel_, batch, x, dropout_, 0);
    const nn::Value logits = classifier_.forward(tape, x);
    if (batch.field(nn::kTargets).defined()) {
      // Held-out losses are cross-entropies, which compare between runs.
      nn::classification_loss(tape, batch, logits, batch.training ? label_smoothing_ : 0.0f);
      return {};
    }
    const Tensor whole = tape.context().allocate(logits.shape(), DType::kF32);
    ops::cast(tape.context(), logits.tensor(), whole);
    return {tape.input(whole, false)};
  }
  bool is_loss() const override { return true; }

 private:
  ClassifierHead(const MobileNetV2Config& config, const MobileNetV2Sizes& sizes,
                 const nn::LayerContext& context, const std::shared_ptr<Communicator>& replicas)
      : dropout_(static_cast<float>(config.dropout)),
        label_smoothing_(static_cast<float>(config.label_smoothing)),
        parallel_(context.parallel),
        layer_(context, states_, sizes.head, ops::kRelu6, replicas),
        classifier_(context,
                    {nn::ColumnParallelLinear::split_part(context, "classifier", config.classes)},
                    sizes.head.out, true, kClassifierDeviation) {}

  float dropout_, label_smoothing_;
  nn::TensorParallel parallel_;
  ConvolutionNorm layer_;
  nn::ColumnParallelLinear classifier_;
};

// What the forward of some layers takes for a sample.
struct ForwardWork {
  double flops = 0.0;    // of convolutions and products
  double numbers = 0.0;  // that are read or written: those of each operation's tensors

  // A convolution and its norm. Returns the side of the result. In training the norm reads its
  // input twice, and `added` besides.
  std::int64_t add(const ConvolutionNorm::Sizes& sizes, std::int64_t side, bool added = false) {
    const ops::ConvolutionShape shape = sizes.shape(1, side);
    const auto in = static_cast<double>(shape.input().elements());
    const auto out = static_cast<double>(shape.output().elements());
    flops += 2.0 * out * static_cast<double>(shape.taps() * shape.group_channels());
    numbers += in + out + (added ? 4.0 : 3.0) * out + static_cast<double>(sizes.parameters());
    return sizes.side_after(side);
  }
};

ForwardWork work_of(const InvertedResidual& sizes) {
  ForwardWork work;
  if (sizes.expands()) work.add(sizes.expand(), sizes.side);
  const std::int64_t side = work.add(sizes.depthwise(), sizes.side);
  work.add(sizes.project(), side, sizes.adds());
  return work;
}

ForwardWork work_of_head(const MobileNetV2Config& config, const MobileNetV2Sizes& sizes) {
  ForwardWork work;
  work.add(sizes.head, sizes.last_side);
  const auto channels = static_cast<double>(sizes.head.out);
  const auto classes = static_cast<double>(config.classes);
  work.numbers += channels * static_cast<double>(sizes.last_side * sizes.last_side + 2);
  work.numbers += channels * classes + 3.0 * classes;
  work.flops += 2.0 * channels * classes;
  return work;
}

std::int64_t parameters_of(const MobileNetV2Config& config, const MobileNetV2Sizes& sizes) {
  std::int64_t count = sizes.stem.parameters() + sizes.head.parameters();
  for (const InvertedResidual& block : sizes.blocks) {
    if (block.expands()) count += block.expand().parameters();
    count += block.depthwise().parameters() + block.project().parameters();
  }
  return count + (sizes.head.out + 1) * config.classes;
}

const std::array<std::pair<std::string_view, MobileNetV2Config>, 2>& mobilenet_v2_presets() {
  static const std::array<std::pair<std::string_view, MobileNetV2Config>, 2> kPresets = {
      {{"mobilenet_v2", {}},
       {"mobilenet_v2-cifar",
        {.classes = 10, .image = 32, .stem = MobileNetV2Config::Stem::kCifar, .dropout = 0.0}}}};
  return kPresets;
}

}  // namespace

std::vector<MobileNetV2Config::Stage> MobileNetV2Config::published_stages() {
  return {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
          {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
}

MobileNetV2Sizes::MobileNetV2Sizes(const MobileNetV2Config& config) {
  const bool small = config.stem == MobileNetV2Config::Stem::kCifar;
  stem = {kColours, scaled(kStemChannels, config.width_multiple), 3, small ? 1 : 2};
  std::int64_t channels = stem.out, side = stem.side_after(config.image);
  bool first_to_shrink = true;
  for (const MobileNetV2Config::Stage& stage : config.stages) {
    const std::int64_t out = scaled(stage.channels, config.width_multiple);
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      std::int64_t stride = i == 0 ? stage.stride : 1;
      if (stride > 1 && std::exchange(first_to_shrink, false) && small) stride = 1;
      blocks.push_back({channels, channels * stage.expansion, out, stride, side});
      side = blocks.back().depthwise().side_after(side);
      channels = out;
    }
  }
  head = {channels, scaled(kHeadChannels, std::max(1.0, config.width_multiple))};
  last_side = side;
}

MobileNetV2Config mobilenet_v2_preset(std::string_view name) {
  for (const auto& [preset, config] : mobilenet_v2_presets()) {
    if (preset == name) return config;
  }
  refuse_preset(name, mobilenet_v2_preset_names());
}

std::vector<std::string_view> mobilenet_v2_preset_names() {
  std::vector<std::string_view> names;
  for (const auto& [preset, config] : mobilenet_v2_presets()) names.push_back(preset);
  return names;
}

nn::ModelPlan mobilenet_v2_plan(const MobileNetV2Config& config) {
  const MobileNetV2Sizes sizes(config);
  nn::ModelPlan plan;
  plan.parameters = parameters_of(config, sizes);
  plan.description = fmt::format(
      "MobileNetV2, width x {}, {} x {} pixels, {} stem, {} classes{}{}; batch norm over {}",
      config.width_multiple, config.image, config.image,
      config.stem == MobileNetV2Config::Stem::kCifar ? "CIFAR's" : "ImageNet's", config.classes,
      config.dropout > 0 ? fmt::format(", dropout {}", config.dropout) : "",
      config.label_smoothing > 0 ? fmt::format(", label smoothing {}", config.label_smoothing) : "",
      config.sync ? "the micro-batches of all data replicas" : "each micro-batch");

  // The block hands on pictures of side x side x channels.
  const auto add = [&](std::string name, const ForwardWork& work, std::int64_t side,
                       std::int64_t channels, auto build) {
    plan.flops_per_sample += 3.0 * work.flops;
    plan.blocks.push_back(
        {.name = std::move(name),
         .flops = work.flops,
         .bytes = work.numbers * sizeof(float),
         .build = build,
         .boundary = [=](std::int64_t batch, std::int64_t, const auto&) {
           return std::vector<nn::BoundaryTensor>{{{batch, side, side, channels}}};
         }});
  };
  ForwardWork stem;
  const std::int64_t side = stem.add(sizes.stem, config.image);
  add("stem", stem, side, sizes.stem.out, [config, sizes = sizes.stem](nn::BuildContext& build) {
    return std::make_unique<PictureStem>(config, sizes, build);
  });
  for (std::size_t i = 0; i < sizes.blocks.size(); ++i) {
    const InvertedResidual& block = sizes.blocks[i];
    add(fmt::format("blocks.{}", i), work_of(block), block.depthwise().side_after(block.side),
        block.out, [config, block, i](nn::BuildContext& build) {
          return std::make_unique<InvertedResidualBlock>(config, block, build, static_cast<int>(i));
        });
  }
  add("head", work_of_head(config, sizes), 0, 0, [config, sizes](nn::BuildContext& build) {
    return std::make_unique<ClassifierHead>(config, sizes, build);
  });
  plan.blocks.back().loss = true;
  plan.blocks.back().boundary = {};
  for (nn::BlockPlan& block : plan.blocks) block.collective = block.together = config.sync;
  return plan;
}

}  // namespace trireme::models
