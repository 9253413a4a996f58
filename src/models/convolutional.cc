#include "models/convolutional.h"

#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"

#include "models/keys.h"
#include "models/plan_costs.h"

namespace trireme::models {
namespace {

using Layer = ConvolutionalNetwork::Layer;
using Stem = ConvolutionalConfig::Stem;

// The smallest pictures of MobileNetV2's paper; smaller ones take the stem for CIFAR.
constexpr std::int64_t kLeastForImagenetStem = 96;

class PictureStem : public nn::Block {
 public:
  PictureStem(const ConvolutionalConfig& config, const ConvolutionalNetwork& network,
              nn::BuildContext& build)
      : layer_(layer_of(parameters_, build, "stem"), states_, network.stem.convolution,
               network.clamp, sharing_norms(config, build)),
        sizes_(network.stem) {}

  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values) const override {
    const DType compute = parameters_.parameters().front()->weight().dtype();
    const nn::Value pixels = nn::pixels_of(tape, batch, compute);
    const nn::Value x = layer_.forward(tape, batch, pixels);
    if (!sizes_.pools) return {x};
    const ops::PoolingShape pooling = sizes_.pooling(x.shape()[0], pixels.shape()[1]);
    return {nn::max_pooling(tape, x, pooling.kernel_height, pooling.stride, pooling.padding)};
  }

 private:
  ConvolutionNorm layer_;
  StemSizes sizes_;
};

class ClassifierHead : public nn::Block {
 public:
  ClassifierHead(const ConvolutionalConfig& config, const ConvolutionalNetwork& network,
                 nn::BuildContext& build)
      : ClassifierHead(config, network, layer_of(parameters_, build, "head"),
                       sharing_norms(config, build)) {}

  // Without targets it returns the logits (batch, classes), fp32.
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    nn::Value x = layer_ ? layer_->forward(tape, batch, in[0]) : in[0];
    x = nn::global_average_pooling(tape, x);  // (B, C)
    x = nn::dropout(tape, parallel_, batch, x, dropout_, 0);
    const nn::Value logits = classifier_.forward(tape, x);
    return nn::classify(tape, batch, logits, label_smoothing_);
  }
  bool is_loss() const override { return true; }

 private:
  ClassifierHead(const ConvolutionalConfig& config, const ConvolutionalNetwork& network,
                 const nn::LayerContext& context, const std::shared_ptr<Communicator>& replicas)
      : dropout_(static_cast<float>(network.dropout)),
        label_smoothing_(static_cast<float>(config.label_smoothing)),
        parallel_(context.parallel),
        layer_(network.last ? std::optional<ConvolutionNorm>(std::in_place, context, states_,
                                                             *network.last, network.clamp, replicas)
                            : std::nullopt),
        classifier_(
            context,
            {nn::ColumnParallelLinear::split_part(context, "classifier", config.classes, false)},
            network.head_channels(), true, network.classifier) {}

  float dropout_, label_smoothing_;
  nn::TensorParallel parallel_;
  std::optional<ConvolutionNorm> layer_;
  nn::ColumnParallelLinear classifier_;
};

std::string described(const ConvolutionalConfig& config, const ConvolutionalNetwork& network) {
  return fmt::format(
      "{}, {} x {} pixels, {} stem, {} classes{}{}; batch norm over {}", network.name, config.image,
      config.image, config.stem == Stem::kCifar ? "CIFAR's" : "ImageNet's", config.classes,
      network.dropout > 0 ? fmt::format(", dropout {}", network.dropout) : "",
      config.label_smoothing > 0 ? fmt::format(", label smoothing {}", config.label_smoothing) : "",
      config.sync ? "the micro-batches of all data replicas" : "each micro-batch");
}

void check_tensor_ranks(std::string_view family, const GridShape& grid, std::size_t blocks) {
  if (grid[Axis::kTensor] == 1) return;
  throw ConfigError(
      fmt::format("grid.tensor is {}, but {} is not split over tensor ranks: give the ranks to "
                  "grid.data, or to grid.pipeline (at most {} stages)",
                  grid[Axis::kTensor], family, blocks));
}

bool is_sync(const OptionValues& keys) {
  return model_key<std::string>(keys, "batch_norm") == "sync";
}

}  // namespace

nn::ModelPlan plan_of(const ConvolutionalConfig& config, const ConvolutionalNetwork& network) {
  nn::ModelPlan plan;
  plan.description = described(config, network);
  const auto stem = [config, network](nn::BuildContext& build) {
    return std::make_unique<PictureStem>(config, network, build);
  };
  const auto head = [config, network](nn::BuildContext& build) {
    return std::make_unique<ClassifierHead>(config, network, build);
  };
  const auto add = [&](std::string name, auto build) -> nn::BlockPlan& {
    plan.blocks.push_back({.name = std::move(name), .build = std::move(build)});
    plan.blocks.back().collective = plan.blocks.back().together = config.sync;
    return plan.blocks.back();
  };
  // Hands on pictures of side x side x channels.
  const auto handing_on = [](std::int64_t side, std::int64_t channels) {
    return [=](std::int64_t batch, std::int64_t, const nn::TensorParallel&) {
      return std::vector<nn::BoundaryTensor>{{{batch, side, side, channels}}};
    };
  };
  add("stem", stem).boundary =
      handing_on(network.stem.side_after(config.image), network.stem.convolution.out);
  for (const ConvolutionalNetwork::Block& block : network.blocks) {
    add(block.name, block.build).boundary = handing_on(block.side, block.channels);
  }
  add("head", head).loss = true;
  count_costs(plan, {{nn::kPixels, {1, config.image, config.image, nn::kColours}, DType::kF32},
                     {nn::kTargets, {1}, DType::kI32}});
  return plan;
}

std::vector<Operation> operations_of(const ConvolutionalConfig& config,
                                     const ConvolutionalNetwork& network, std::int64_t samples) {
  std::vector<Operation> list;
  std::set<ops::ConvolutionShape> convolutions;
  std::set<std::tuple<std::int64_t, std::int64_t, bool>> norms;
  const auto add = [&](const Layer& layer) {
    const ops::ConvolutionShape shape = layer.sizes.shape(samples, layer.side);
    if (convolutions.insert(shape).second) list.emplace_back(ConvolutionSizes{shape});
    const BatchNormSizes norm{shape.out_pixels(), shape.out_channels, layer.clamps, layer.adds};
    if (norms.emplace(norm.rows, norm.channels, layer.adds).second) list.emplace_back(norm);
  };
  add({network.stem.convolution, config.image});
  if (network.stem.pools) {
    list.emplace_back(MaxPoolingSizes{network.stem.pooling(samples, config.image)});
  }
  for (const ConvolutionalNetwork::Block& block : network.blocks) {
    for (const Layer& layer : block.layers) add(layer);
  }
  const std::int64_t side = network.blocks.back().side;
  if (network.last) add({*network.last, side});
  const std::int64_t channels = network.head_channels();
  list.emplace_back(GlobalPoolingSizes{samples, side, channels});
  list.emplace_back(LinearSizes{"classifier", samples, channels, config.classes});
  list.emplace_back(ClassificationLossSizes{samples, config.classes});
  list.emplace_back(UpdateSizes{plan_of(config, network).parameters});
  return list;
}

Model model_of(std::string_view family, const OptionValues& keys, const ConvolutionalConfig& config,
               const ConvolutionalNetwork& network) {
  nn::ModelPlan plan = plan_of(config, network);
  const std::size_t blocks = plan.blocks.size();
  return {
      .request = {std::string(family), keys},
      .plan = std::move(plan),
      .data = {.classes = static_cast<int>(config.classes)},
      .check_grid = [family = std::string(family),
                     blocks](const GridShape& grid) { check_tensor_ranks(family, grid, blocks); },
      .operations = [config, network](
                        std::int64_t samples) { return operations_of(config, network, samples); },
      .head = {"head.classifier.weight", "head.classifier.bias"}};
}

nn::LayerContext layer_of(nn::ParameterSet& parameters, const nn::BuildContext& build,
                          const std::string& name) {
  return {parameters, {&build.grid.comm(Axis::kTensor), false}, name};
}

std::shared_ptr<Communicator> sharing_norms(const ConvolutionalConfig& config,
                                            nn::BuildContext& build) {
  return config.sync ? build.replicas() : nullptr;
}

void ConvolutionalFamily::add_keys(Options& options, OptionValues& keys) const {
  const KeyAdder model(options, keys);
  model.add<std::string>("preset", "", preset_help(), not_empty(), OnChange::kCompared);
  add_own_keys(model);
  model.add<int>("classes", "classes", "what pictures are told apart into; auto: those of the data",
                 between(1, limits::kTokens));
  model.add<int>("image", "pixels", "side of the pictures that the model sees",
                 between(1, limits::kPixels));
  model.add<std::string>(
      "stem", "",
      "the first layers; imagenet: as published; cifar: they keep the size of small pictures; "
      "auto: cifar for pictures of less than 96 pixels, else imagenet",
      one_of({"imagenet", "cifar"}));
  model.add<std::string>(
      "batch_norm", "",
      "whose statistics a batch norm uses in training; replica: those of a micro-batch; sync: "
      "those of the micro-batches that the data replicas compute together",
      one_of({"replica", "sync"}));
  model.add<double>("label_smoothing", "",
                    "share of a target that is spread evenly over all classes",
                    at_least_and_below(0, 1));
}

bool ConvolutionalFamily::joins_replicas(const OptionValues& keys) const {
  return is_sync(keys);
}

Shape ConvolutionalFamily::sample_shape(const OptionValues& keys) const {
  const std::int64_t preset = preset_of(keys).image;
  const std::int64_t side = model_key<int>(keys, "image").value_or(static_cast<int>(preset));
  return {side, side, nn::kColours};
}

std::string ConvolutionalFamily::summary(const OptionValues& keys) const {
  std::vector<std::string> words;
  if (const auto preset = model_key<std::string>(keys, "preset")) words.push_back(*preset);
  for (const std::string& own : own_words(keys)) words.push_back(own);
  if (const auto side = model_key<int>(keys, "image")) {
    words.push_back(fmt::format("{0} x {0} pixels", *side));
  }
  if (const auto classes = model_key<int>(keys, "classes")) {
    words.push_back(fmt::format("{} classes", *classes));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

void ConvolutionalFamily::apply_keys(const OptionValues& keys, const DataFacts& data,
                                     ConvolutionalConfig& config) const {
  config.classes = number_of_data(keys, "classes", data.classes, "classes", config.classes);
  config.image = sample_shape(keys)[0];
  config.sync = is_sync(keys);
  const std::string stem =
      model_key<std::string>(keys, "stem")
          .value_or(config.image < kLeastForImagenetStem ? "cifar" : "imagenet");
  config.stem = stem == "cifar" ? Stem::kCifar : Stem::kImagenet;
  config.label_smoothing =
      model_key<double>(keys, "label_smoothing").value_or(config.label_smoothing);
}

OptionValues ConvolutionalFamily::written_keys(const ConvolutionalConfig& config) {
  return {{"classes", write_value(config.classes)},
          {"image", write_value(config.image)},
          {"stem", config.stem == Stem::kCifar ? "cifar" : "imagenet"},
          {"batch_norm", config.sync ? "sync" : "replica"},
          {"label_smoothing", write_value(config.label_smoothing)}};
}

}  // namespace trireme::models
