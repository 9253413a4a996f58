#include "models/vit/vit_family.h"

#include "trireme/base/error.h"
#include "trireme/base/limits.h"

#include "models/encoder_keys.h"
#include "models/vit/onnx_graph.h"
#include "models/vit/transformers_names.h"
#include "models/vit/vit.h"

namespace trireme::models {
namespace {

VitConfig vit_of(const OptionValues& keys) {
  const auto preset = model_key<std::string>(keys, "preset");
  return preset ? vit_preset(*preset) : VitConfig();
}

std::int64_t vit_image(const OptionValues& keys) {
  return model_key<int>(keys, "image").value_or(static_cast<int>(vit_of(keys).image));
}

VitConfig vit_with(const OptionValues& keys, const DataFacts& data) {
  const VitConfig preset = vit_of(keys);
  VitConfig result = preset;
  read_encoder_keys(keys, result);
  const NumbersOfKeys given(keys);
  result.patch = given.whole("patch", preset.patch);
  result.image = vit_image(keys);
  result.classes = number_of_data(keys, "classes", data.classes, "classes", preset.classes);
  result.label_smoothing = given.real("label_smoothing", preset.label_smoothing);
  check(result);
  return result;
}

OptionValues vit_keys(const VitConfig& model) {
  OptionValues keys = encoder_keys(model);
  keys["patch"] = write_value(model.patch);
  keys["image"] = write_value(model.image);
  keys["classes"] = write_value(model.classes);
  keys["label_smoothing"] = write_value(model.label_smoothing);
  return keys;
}

std::vector<Operation> vit_operations(const VitConfig& config, std::int64_t samples) {
  const std::int64_t rows = samples * config.positions(), width = config.width;
  std::vector<Operation> list = {
      ConvolutionSizes{{samples, config.image, config.image, nn::kColours, width, config.patch,
                        config.patch, config.patch}}};
  const std::vector<Operation> layer = layer_operations(transformer_sizes(config), samples);
  list.insert(list.end(), layer.begin(), layer.end());
  list.emplace_back(PositionsSizes{rows, config.positions(), width});
  list.emplace_back(LinearSizes{"classifier", samples, width, config.classes});
  list.emplace_back(ClassificationLossSizes{samples, config.classes});
  list.emplace_back(UpdateSizes{vit_plan(config).blocks[1].parameters});
  return list;
}

class VitFamily final : public Family {
 public:
  std::string_view name() const override { return "vit"; }
  std::string_view task() const override { return "classification"; }
  std::vector<std::string_view> presets() const override { return vit_preset_names(); }
  void add_keys(Options& options, OptionValues& keys) const override;
  void check_keys(const OptionValues& keys) const override {
    check_divides("model.heads", model_key<int>(keys, "heads"), "model.width",
                  model_key<int>(keys, "width"));
    check_divides("model.patch", model_key<int>(keys, "patch"), "model.image",
                  model_key<int>(keys, "image"));
  }
  Shape sample_shape(const OptionValues& keys) const override {
    return {vit_image(keys), vit_image(keys), nn::kColours};
  }
  Model resolve(const OptionValues& keys, const DataFacts& data) const override {
    return vit_model(vit_with(keys, data));
  }
  std::string summary(const OptionValues& keys) const override;
  std::vector<std::string_view> foreign_types() const override { return {"vit"}; }
  ForeignKeys keys_of_foreign(const Json& config) const override { return keys_of_vit(config); }
};

void VitFamily::add_keys(Options& options, OptionValues& keys) const {
  const KeyAdder model(options, keys);
  model.add<std::string>(
      "preset", "",
      "a published model's sizes, as vit-small (default: vit-base), or vit-tiny-cifar; the other "
      "model keys change it",
      not_empty(), OnChange::kCompared);
  add_encoder_sizes(model);
  model.add<int>("patch", "pixels", "side of the patches that are the positions of the transformer",
                 between(1, limits::kPixels));
  model.add<int>("image", "pixels", "side of the pictures that the model sees",
                 between(1, limits::kPixels));
  model.add<int>("classes", "classes", "what pictures are told apart into; auto: those of the data",
                 between(1, limits::kTokens));
  add_encoder_rest(model);
  model.add<double>("label_smoothing", "",
                    "share of a target that is spread evenly over all classes",
                    at_least_and_below(0, 1));
}

std::string VitFamily::summary(const OptionValues& keys) const {
  return summary_of(keys, {{"layers", "layers"},
                           {"width", "wide"},
                           {"heads", "heads"},
                           {"patch", "pixels to a patch"},
                           {"image", "pixels to a side"},
                           {"classes", "classes"}});
}

}  // namespace

Model vit_model(const VitConfig& config) {
  return {.request = {"vit", vit_keys(config)},
          .plan = vit_plan(config),
          .data = {.classes = static_cast<int>(config.classes)},
          .attention = transformer_sizes(config).attention(1),
          .check_grid =
              [config](const GridShape& grid) {
                nn::check_heads_fit(config.heads, config.heads, grid[Axis::kTensor]);
              },
          .operations = [config](std::int64_t samples) { return vit_operations(config, samples); },
          .foreign = [config] { return transformers_model(config); },
          .head = {"head.classifier.weight", "head.classifier.bias"},
          .onnx = [config](DType weights) { return onnx_model(config, weights); }};
}

const Family& vit_family() {
  static const VitFamily kFamily;
  return kFamily;
}

}  // namespace trireme::models
