#include "models/gpt/gpt_family.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/text.h"

#include "models/gpt/gpt.h"
#include "models/gpt/onnx_graph.h"
#include "models/gpt/transformers_names.h"
#include "models/keys.h"

namespace trireme::models {
namespace {

// The model of a configuration without a preset and keys: a small one that trains in minutes.
GptConfig built_in_model() {
  GptConfig model;
  model.layers = 6;
  model.width = 256;
  model.heads = 8;
  model.vocabulary = 50257;  // of GPT-2
  model.context = 128;
  return model;
}

GptConfig preset_of(const OptionValues& keys) {
  const auto preset = model_key<std::string>(keys, "preset");
  return preset ? gpt_preset(*preset) : built_in_model();
}

nn::NormKind norm_kind(const std::string& word) {
  return word == "rms" ? nn::NormKind::kRms : nn::NormKind::kLayer;
}
nn::ActivationKind activation_kind(const std::string& word) {
  return word == "swiglu" ? nn::ActivationKind::kSwiglu : nn::ActivationKind::kGelu;
}
nn::PositionKind position_kind(const std::string& word) {
  return word == "rotary" ? nn::PositionKind::kRotary : nn::PositionKind::kLearned;
}

std::int64_t resolve_context(const OptionValues& keys) {
  return model_key<int>(keys, "context").value_or(static_cast<int>(preset_of(keys).context));
}

GptConfig config_of(const OptionValues& keys, const DataFacts& data) {
  const GptConfig preset = preset_of(keys);
  GptConfig result = preset;
  const NumbersOfKeys given(keys);
  result.layers = given.whole("layers", preset.layers);
  result.width = given.whole("width", preset.width);
  result.heads = given.whole("heads", preset.heads);
  result.context = resolve_context(keys);
  if (const auto norm = model_key<std::string>(keys, "norm")) result.norm = norm_kind(*norm);
  if (const auto activation = model_key<std::string>(keys, "activation")) {
    result.activation = activation_kind(*activation);
  }
  if (const auto positions = model_key<std::string>(keys, "positions")) {
    result.positions = position_kind(*positions);
  }
  result.tied = model_key<bool>(keys, "tied").value_or(preset.tied);
  result.bias = model_key<bool>(keys, "bias").value_or(preset.bias);
  result.dropout = static_cast<float>(given.real("dropout", shortest(preset.dropout)));
  // A preset's grouping of heads and its feed-forward width apply only to the preset's own sizes.
  const bool has_preset = keys.contains("preset");
  const bool own_heads = has_preset && result.heads == preset.heads;
  result.kv_heads = given.whole("kv_heads", own_heads ? preset.kv_heads : result.heads);
  const bool own_width =
      has_preset && result.width == preset.width && result.activation == preset.activation;
  result.hidden = given.whole(
      "hidden", own_width ? preset.hidden : default_hidden(result.activation, result.width));
  if (const auto theta = model_key<double>(keys, "rotary_theta")) {
    result.rotary_theta = static_cast<float>(*theta);
  }
  if (const auto epsilon = model_key<double>(keys, "norm_epsilon")) {
    result.norm_epsilon = static_cast<float>(*epsilon);
  }
  result.vocabulary =
      number_of_data(keys, "vocabulary", data.vocabulary, "tokens", preset.vocabulary);
  check(result);
  return result;
}

OptionValues written_out(const GptConfig& model) {
  // Writes a number as people do: 1e-05 and not the nearest double of the float.
  const auto real = [](float number) { return write_value(shortest(number)); };
  return {{"layers", write_value(model.layers)},
          {"width", write_value(model.width)},
          {"heads", write_value(model.heads)},
          {"kv_heads", write_value(model.kv_heads)},
          {"hidden", write_value(model.hidden)},
          {"vocabulary", write_value(model.vocabulary)},
          {"context", write_value(model.context)},
          {"norm", model.norm == nn::NormKind::kRms ? "rms" : "layer"},
          {"activation", model.activation == nn::ActivationKind::kSwiglu ? "swiglu" : "gelu"},
          {"positions", model.positions == nn::PositionKind::kRotary ? "rotary" : "learned"},
          {"tied", write_value(model.tied)},
          {"bias", write_value(model.bias)},
          {"dropout", real(model.dropout)},
          {"norm_epsilon", real(model.norm_epsilon)},
          {"rotary_theta", real(model.rotary_theta)}};
}

std::vector<Operation> operations_of(const GptConfig& model, std::int64_t samples) {
  const std::int64_t rows = samples * model.context, width = model.width;
  std::vector<Operation> list = layer_operations(transformer_sizes(model), samples);
  list.emplace_back(EmbeddingSizes{rows, model.vocabulary, width});
  if (model.positions == nn::PositionKind::kLearned) {
    list.emplace_back(PositionsSizes{rows, model.context, width});
  }
  list.emplace_back(LossSizes{rows, width, model.vocabulary});
  list.emplace_back(UpdateSizes{gpt_plan(model).parameters / model.layers});
  return list;
}

class GptFamily final : public Family {
 public:
  std::string_view name() const override { return "gpt"; }
  std::string_view task() const override { return "causal_language_model"; }
  std::vector<std::string_view> presets() const override { return gpt_preset_names(); }
  void add_keys(Options& options, OptionValues& keys) const override;
  void check_keys(const OptionValues& keys) const override;
  Shape sample_shape(const OptionValues& keys) const override { return {resolve_context(keys)}; }
  Model resolve(const OptionValues& keys, const DataFacts& data) const override;
  std::string summary(const OptionValues& keys) const override;
  std::vector<std::string_view> foreign_types() const override { return {"gpt2", "llama"}; }
  ForeignKeys keys_of_foreign(const Json& config) const override {
    return config.at("model_type").text() == "gpt2" ? keys_of_gpt2(config) : keys_of_llama(config);
  }
};

void GptFamily::add_keys(Options& options, OptionValues& keys) const {
  const KeyAdder model(options, keys);
  model.add<std::string>("preset", "",
                         "a published model's sizes, as gpt2-124m; the other model keys change it",
                         not_empty(), OnChange::kCompared);
  model.add<int>("layers", "blocks", "transformer blocks", between(1, limits::kLayers));
  model.add<int>("width", "channels", "width of the residual stream", between(1, limits::kWidth));
  model.add<int>("heads", "heads", "attention (query) heads", between(1, limits::kWidth));
  model.add<int>("kv_heads", "heads",
                 "key and value heads, each shared by several query heads; auto: as many as heads",
                 between(1, limits::kWidth));
  model.add<int>("hidden", "channels",
                 "width inside the MLP; auto: the usual one for the width and the activation",
                 between(1, limits::kHidden));
  model.add<int>("vocabulary", "tokens", "size of the vocabulary; auto: that of the data",
                 between(1, limits::kTokens));
  model.add<int>("context", "tokens", "length of a training sequence", between(1, limits::kTokens));
  model.add<std::string>("norm", "", "normalisation", one_of({"layer", "rms"}));
  model.add<double>("norm_epsilon", "", "added to the variance that a norm divides by",
                    between(limits::kLeastReal, 1));
  model.add<std::string>("activation", "", "of the MLP", one_of({"gelu", "swiglu"}));
  model.add<std::string>("positions", "", "how positions enter", one_of({"learned", "rotary"}));
  model.add<bool>("tied", "", "one matrix for token embedding and output head", {});
  model.add<bool>("bias", "", "biases in linear layers and layer norms", {});
  model.add<double>("dropout", "probability", "share of activations zeroed in training",
                    at_least_and_below(0, 1));
  model.add<double>("rotary_theta", "", "base of the rotary positions' angles",
                    between(limits::kLeastReal, limits::kReal));
}

void GptFamily::check_keys(const OptionValues& keys) const {
  const auto width = model_key<int>(keys, "width"), heads = model_key<int>(keys, "heads");
  check_divides("model.heads", heads, "model.width", width);
  check_divides("model.kv_heads", model_key<int>(keys, "kv_heads"), "model.heads", heads);
  const bool rotary = model_key<std::string>(keys, "positions") == "rotary";
  if (rotary && heads && width && *width / *heads % 2 != 0) {
    throw ConfigError(
        fmt::format("model.positions = rotary turns pairs of channels, but model.width ({}) / "
                    "model.heads ({}) is {}, an odd number",
                    *width, *heads, *width / *heads));
  }
}

Model GptFamily::resolve(const OptionValues& keys, const DataFacts& data) const {
  return gpt_model(config_of(keys, data));
}

std::string GptFamily::summary(const OptionValues& keys) const {
  return summary_of(keys, {{"layers", "layers"},
                           {"width", "wide"},
                           {"heads", "heads"},
                           {"context", "tokens of context"}});
}

}  // namespace

Model gpt_model(const GptConfig& config) {
  return {
      .request = {"gpt", written_out(config)},
      .plan = gpt_plan(config),
      .data = {.vocabulary = static_cast<int>(config.vocabulary)},
      .attention = transformer_sizes(config).attention(1),
      .check_grid =
          [config](const GridShape& grid) {
            nn::check_heads_fit(config.heads, config.kv_heads, grid[Axis::kTensor]);
          },
      .operations = [config](std::int64_t samples) { return operations_of(config, samples); },
      .foreign = [config] { return transformers_model(config); },
      .head = config.tied ? std::vector<std::string>() : std::vector<std::string>{"head.weight"},
      .onnx = [config](DType weights) { return onnx_model(config, weights); }};
}

const Family& gpt_family() {
  static const GptFamily kFamily;
  return kFamily;
}

}  // namespace trireme::models
