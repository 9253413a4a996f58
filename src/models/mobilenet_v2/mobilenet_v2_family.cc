#include "models/mobilenet_v2/mobilenet_v2_family.h"

#include <fmt/format.h>

#include "trireme/base/limits.h"

#include "models/keys.h"
#include "models/mobilenet_v2/mobilenet_v2.h"
#include "models/mobilenet_v2/torchvision_names.h"

namespace trireme::models {
namespace {

MobileNetV2Config mobilenet_v2_of(const OptionValues& keys) {
  const auto preset = model_key<std::string>(keys, "preset");
  return preset ? mobilenet_v2_preset(*preset) : MobileNetV2Config();
}

class MobileNetV2Family final : public ConvolutionalFamily {
 public:
  std::string_view name() const override { return "mobilenet_v2"; }
  std::vector<std::string_view> presets() const override { return mobilenet_v2_preset_names(); }
  Model resolve(const OptionValues& keys, const DataFacts& data) const override {
    MobileNetV2Config config = mobilenet_v2_of(keys);
    apply_keys(keys, data, config);
    config.width_multiple =
        model_key<double>(keys, "width_multiple").value_or(config.width_multiple);
    config.dropout = model_key<double>(keys, "dropout").value_or(config.dropout);
    return mobilenet_v2_model(config);
  }
  static OptionValues written(const MobileNetV2Config& config) {
    OptionValues keys = written_keys(config);
    keys["width_multiple"] = write_value(config.width_multiple);
    keys["dropout"] = write_value(config.dropout);
    return keys;
  }

 protected:
  std::string preset_help() const override {
    return "mobilenet_v2 (as published, the default) or mobilenet_v2-cifar; the other model keys "
           "change it";
  }
  void add_own_keys(const KeyAdder& model) const override {
    model.add<double>("width_multiple", "", "multiplies the channels of all layers",
                      between(0.01, limits::kWidthMultiple));
    model.add<double>("dropout", "probability",
                      "share of the classifier's inputs zeroed in training",
                      at_least_and_below(0, 1));
  }
  std::vector<std::string> own_words(const OptionValues& keys) const override {
    const auto multiple = model_key<double>(keys, "width_multiple");
    if (!multiple) return {};
    return {fmt::format("width x {}", *multiple)};
  }
  ConvolutionalConfig preset_of(const OptionValues& keys) const override {
    return mobilenet_v2_of(keys);
  }
};

}  // namespace

Model mobilenet_v2_model(const MobileNetV2Config& config) {
  Model model = model_of("mobilenet_v2", MobileNetV2Family::written(config), config,
                         mobilenet_v2_network(config));
  model.foreign = [config] { return torchvision_model(config); };
  model.onnx = [config](DType weights) {
    return onnx_model(config, mobilenet_v2_network(config), torchvision_model(config), weights);
  };
  return model;
}

const Family& mobilenet_v2_family() {
  static const MobileNetV2Family kFamily;
  return kFamily;
}

}  // namespace trireme::models
