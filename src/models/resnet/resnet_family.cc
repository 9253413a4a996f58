#include "models/resnet/resnet_family.h"

#include <fmt/format.h>

#include "models/keys.h"
#include "models/resnet/resnet.h"
#include "models/resnet/torchvision_names.h"

namespace trireme::models {
namespace {

// The preset, with the blocks of another depth if one is given.
ResNetConfig resnet_of(const OptionValues& keys) {
  const auto preset = model_key<std::string>(keys, "preset");
  const ResNetConfig config = preset ? resnet_preset(*preset) : ResNetConfig();
  const auto depth = model_key<int>(keys, "depth");
  if (!depth) return config;
  ResNetConfig other = resnet_of_depth(*depth);
  static_cast<ConvolutionalConfig&>(other) = config;
  return other;
}

class ResNetFamily final : public ConvolutionalFamily {
 public:
  std::string_view name() const override { return "resnet"; }
  std::vector<std::string_view> presets() const override { return resnet_preset_names(); }
  Model resolve(const OptionValues& keys, const DataFacts& data) const override {
    ResNetConfig config = resnet_of(keys);
    apply_keys(keys, data, config);
    return resnet_model(config);
  }
  static OptionValues written(const ResNetConfig& config) {
    OptionValues keys = written_keys(config);
    keys["depth"] = std::to_string(config.depth());
    return keys;
  }

 protected:
  std::string preset_help() const override {
    return "resnet18 (as published, the default), resnet34, resnet50, or one of them for small "
           "pictures, as resnet18-cifar; the other model keys change it";
  }
  void add_own_keys(const KeyAdder& model) const override {
    model.add<std::string>("depth", "layers",
                           "which of the published models: 18, 34 or 50 layers deep",
                           one_of({"18", "34", "50"}));
  }
  std::vector<std::string> own_words(const OptionValues& keys) const override {
    const auto depth = model_key<int>(keys, "depth");
    if (!depth) return {};
    return {fmt::format("{} layers", *depth)};
  }
  ConvolutionalConfig preset_of(const OptionValues& keys) const override { return resnet_of(keys); }
};

}  // namespace

Model resnet_model(const ResNetConfig& config) {
  Model model = model_of("resnet", ResNetFamily::written(config), config, resnet_network(config));
  model.foreign = [config] { return torchvision_model(config); };
  model.onnx = [config](DType weights) {
    return onnx_model(config, resnet_network(config), torchvision_model(config), weights);
  };
  return model;
}

const Family& resnet_family() {
  static const ResNetFamily kFamily;
  return kFamily;
}

}  // namespace trireme::models
