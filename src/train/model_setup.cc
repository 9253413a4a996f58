#include "trireme/train/model_setup.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Returns the model for a configuration without a preset and keys: a small one that trains in
// minutes.
models::GptConfig built_in_model() {
  models::GptConfig model;
  model.layers = 6;
  model.width = 256;
  model.heads = 8;
  model.context = 128;
  return model;
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

models::GptConfig preset_of(const Config::Model& model) {
  return model.preset ? models::gpt_preset(*model.preset) : built_in_model();
}

std::int64_t resolve_vocabulary(const Config::Model& model, std::int64_t preset,
                                std::optional<int> data) {
  if (data && model.vocabulary && *model.vocabulary != *data) {
    throw ConfigError(
        fmt::format("model.vocabulary is {}, but the data has {} tokens: leave it out, "
                    "and it follows the data",
                    *model.vocabulary, *data));
  }
  if (data) return *data;
  return model.vocabulary.value_or(static_cast<int>(preset));
}

}  // namespace

std::int64_t resolve_context(const Config::Model& model) {
  return model.context.value_or(static_cast<int>(preset_of(model).context));
}

models::GptConfig resolve_model(const Config::Model& model, std::optional<int> data_vocabulary) {
  const models::GptConfig preset = preset_of(model);
  models::GptConfig result = preset;
  result.layers = model.layers.value_or(static_cast<int>(preset.layers));
  result.width = model.width.value_or(static_cast<int>(preset.width));
  result.heads = model.heads.value_or(static_cast<int>(preset.heads));
  result.context = resolve_context(model);
  if (model.norm) result.norm = norm_kind(*model.norm);
  if (model.activation) result.activation = activation_kind(*model.activation);
  if (model.positions) result.positions = position_kind(*model.positions);
  result.tied = model.tied.value_or(preset.tied);
  result.bias = model.bias.value_or(preset.bias);
  result.dropout = static_cast<float>(model.dropout.value_or(static_cast<double>(preset.dropout)));
  // A preset's grouping of heads and its feed-forward width apply only to the preset's own sizes.
  const bool own_heads = model.preset && result.heads == preset.heads;
  result.kv_heads =
      model.kv_heads.value_or(static_cast<int>(own_heads ? preset.kv_heads : result.heads));
  const bool own_width =
      model.preset && result.width == preset.width && result.activation == preset.activation;
  const std::int64_t usual = models::default_hidden(result.activation, result.width);
  result.hidden = model.hidden ? *model.hidden : own_width ? preset.hidden : usual;
  if (model.rotary_theta) result.rotary_theta = static_cast<float>(*model.rotary_theta);
  result.vocabulary = resolve_vocabulary(model, preset.vocabulary, data_vocabulary);
  models::check(result);
  return result;
}

Config::Model written_out(const models::GptConfig& model) {
  Config::Model written;
  written.layers = static_cast<int>(model.layers);
  written.width = static_cast<int>(model.width);
  written.heads = static_cast<int>(model.heads);
  written.kv_heads = static_cast<int>(model.kv_heads);
  written.hidden = static_cast<int>(model.hidden);
  written.vocabulary = static_cast<int>(model.vocabulary);
  written.context = static_cast<int>(model.context);
  written.norm = model.norm == nn::NormKind::kRms ? "rms" : "layer";
  written.activation = model.activation == nn::ActivationKind::kSwiglu ? "swiglu" : "gelu";
  written.positions = model.positions == nn::PositionKind::kRotary ? "rotary" : "learned";
  written.tied = model.tied;
  written.bias = model.bias;
  written.dropout = static_cast<double>(model.dropout);
  written.rotary_theta = static_cast<double>(model.rotary_theta);
  return written;
}

}  // namespace trireme
