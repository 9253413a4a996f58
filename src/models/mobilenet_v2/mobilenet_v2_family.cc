#include "models/mobilenet_v2/mobilenet_v2_family.h"

#include <set>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"

#include "models/keys.h"
#include "models/mobilenet_v2/mobilenet_v2.h"
#include "models/mobilenet_v2/torchvision_names.h"

namespace trireme::models {
namespace {

using Stem = MobileNetV2Config::Stem;

// The paper's smallest pictures have 96 x 96 pixels; smaller ones take the stem for CIFAR.
constexpr std::int64_t kLeastForImagenetStem = 96;

MobileNetV2Config mobilenet_v2_of(const OptionValues& keys) {
  const auto preset = model_key<std::string>(keys, "preset");
  return preset ? mobilenet_v2_preset(*preset) : MobileNetV2Config();
}

std::int64_t image_side(const OptionValues& keys) {
  return model_key<int>(keys, "image").value_or(static_cast<int>(mobilenet_v2_of(keys).image));
}

bool is_sync(const OptionValues& keys) {
  return model_key<std::string>(keys, "batch_norm") == "sync";
}

MobileNetV2Config resolved(const OptionValues& keys, const DataFacts& data) {
  MobileNetV2Config result = mobilenet_v2_of(keys);
  result.classes = number_of_data(keys, "classes", data.classes, "classes", result.classes);
  result.image = image_side(keys);
  result.sync = is_sync(keys);
  const std::string stem =
      model_key<std::string>(keys, "stem")
          .value_or(result.image < kLeastForImagenetStem ? "cifar" : "imagenet");
  result.stem = stem == "cifar" ? Stem::kCifar : Stem::kImagenet;
  result.width_multiple = model_key<double>(keys, "width_multiple").value_or(result.width_multiple);
  result.dropout = model_key<double>(keys, "dropout").value_or(result.dropout);
  result.label_smoothing =
      model_key<double>(keys, "label_smoothing").value_or(result.label_smoothing);
  return result;
}

OptionValues written_keys(const MobileNetV2Config& model) {
  return {{"classes", write_value(model.classes)},
          {"image", write_value(model.image)},
          {"stem", model.stem == Stem::kCifar ? "cifar" : "imagenet"},
          {"width_multiple", write_value(model.width_multiple)},
          {"dropout", write_value(model.dropout)},
          {"batch_norm", model.sync ? "sync" : "replica"},
          {"label_smoothing", write_value(model.label_smoothing)}};
}

// Each size once.
std::vector<Operation> mobilenet_v2_operations(const MobileNetV2Config& config,
                                               std::int64_t samples) {
  const MobileNetV2Sizes sizes(config);
  std::vector<Operation> list;
  std::set<ops::ConvolutionShape> convolutions;
  std::set<std::tuple<std::int64_t, std::int64_t, bool>> norms;
  const auto add = [&](const ConvolutionNorm::Sizes& layer, std::int64_t side, bool clamps,
                       bool adds) {
    const ops::ConvolutionShape shape = layer.shape(samples, side);
    if (convolutions.insert(shape).second) list.emplace_back(ConvolutionSizes{shape});
    const BatchNormSizes norm{shape.out_pixels(), shape.out_channels, clamps, adds};
    if (norms.emplace(norm.rows, norm.channels, adds).second) list.emplace_back(norm);
    return layer.side_after(side);
  };
  add(sizes.stem, config.image, true, false);
  for (const InvertedResidual& block : sizes.blocks) {
    if (block.expands()) add(block.expand(), block.side, true, false);
    const std::int64_t side = add(block.depthwise(), block.side, true, false);
    add(block.project(), side, false, block.adds());
  }
  add(sizes.head, sizes.last_side, true, false);
  list.emplace_back(GlobalPoolingSizes{samples, sizes.last_side, sizes.head.out});
  list.emplace_back(LinearSizes{"classifier", samples, sizes.head.out, config.classes});
  list.emplace_back(ClassificationLossSizes{samples, config.classes});
  list.emplace_back(UpdateSizes{mobilenet_v2_plan(config).parameters});
  return list;
}

void check_tensor_ranks(const GridShape& grid, std::size_t blocks) {
  if (grid[Axis::kTensor] == 1) return;
  throw ConfigError(
      fmt::format("grid.tensor is {}, but mobilenet_v2 is not split over tensor ranks: give the "
                  "ranks to grid.data, or to grid.pipeline (at most {} stages)",
                  grid[Axis::kTensor], blocks));
}

class MobileNetV2Family final : public Family {
 public:
  std::string_view name() const override { return "mobilenet_v2"; }
  std::string_view task() const override { return "classification"; }
  std::vector<std::string_view> presets() const override { return mobilenet_v2_preset_names(); }
  void add_keys(Options& options, OptionValues& keys) const override;
  void check_keys(const OptionValues& /*keys*/) const override {}
  bool joins_replicas(const OptionValues& keys) const override { return is_sync(keys); }
  Shape sample_shape(const OptionValues& keys) const override {
    return {image_side(keys), image_side(keys), 3};
  }
  Model resolve(const OptionValues& keys, const DataFacts& data) const override {
    return mobilenet_v2_model(resolved(keys, data));
  }
  std::string summary(const OptionValues& keys) const override;
};

void MobileNetV2Family::add_keys(Options& options, OptionValues& keys) const {
  const auto add = [&]<class T>(T, const char* name, const char* unit, const char* help,
                                const Limit& limit, OnChange on_change = OnChange::kOtherRun) {
    options.add_value<T>(fmt::format("model.{}", name), keys, unit, help, limit, on_change);
  };
  const std::string word;
  constexpr int kNumber = 0;
  constexpr double kReal = 0.0;
  add(word, "preset", "",
      "mobilenet_v2 (as published, the default) or mobilenet_v2-cifar; the other model keys change "
      "it",
      not_empty(), OnChange::kCompared);
  add(kNumber, "classes", "classes", "what pictures are told apart into; auto: those of the data",
      between(1, limits::kTokens));
  add(kNumber, "image", "pixels", "side of the pictures that the model sees",
      between(1, limits::kPixels));
  add(word, "stem", "",
      "cifar: neither the stem nor the first stage that would halve pictures does; auto: cifar for "
      "pictures of less than 96 pixels, else imagenet",
      one_of({"imagenet", "cifar"}));
  add(kReal, "width_multiple", "", "multiplies the channels of all layers",
      between(0.01, limits::kWidthMultiple));
  add(kReal, "dropout", "probability", "share of the classifier's inputs zeroed in training",
      at_least_and_below(0, 1));
  add(word, "batch_norm", "",
      "whose statistics a batch norm uses in training; replica: those of a micro-batch; sync: "
      "those of the micro-batches that the data replicas compute together",
      one_of({"replica", "sync"}));
  add(kReal, "label_smoothing", "", "share of a target that is spread evenly over all classes",
      at_least_and_below(0, 1));
}

std::string MobileNetV2Family::summary(const OptionValues& keys) const {
  std::string text = model_key<std::string>(keys, "preset").value_or("");
  const auto add = [&](const std::string& words) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", words);
  };
  if (const auto multiple = model_key<double>(keys, "width_multiple")) {
    add(fmt::format("width x {}", *multiple));
  }
  if (const auto side = model_key<int>(keys, "image")) add(fmt::format("{0} x {0} pixels", *side));
  if (const auto classes = model_key<int>(keys, "classes"))
    add(fmt::format("{} classes", *classes));
  return text;
}

}  // namespace

Model mobilenet_v2_model(const MobileNetV2Config& config) {
  nn::ModelPlan plan = mobilenet_v2_plan(config);
  const std::size_t blocks = plan.blocks.size();
  return {.request = {"mobilenet_v2", written_keys(config)},
          .plan = std::move(plan),
          .data = {.classes = static_cast<int>(config.classes)},
          .check_grid = [blocks](const GridShape& grid) { check_tensor_ranks(grid, blocks); },
          .operations =
              [config](std::int64_t samples) { return mobilenet_v2_operations(config, samples); },
          .foreign = [config] { return torchvision_model(config); },
          .head = {"head.classifier.weight", "head.classifier.bias"}};
}

const Family& mobilenet_v2_family() {
  static const MobileNetV2Family kFamily;
  return kFamily;
}

}  // namespace trireme::models
