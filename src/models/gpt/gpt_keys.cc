#include "models/gpt/gpt_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/text.h"

#include "models/keys.h"

namespace trireme::models {
namespace {

// The words for the values of an enumeration.
template <class Value, std::size_t kCount>
using Words = std::array<std::pair<Value, const char*>, kCount>;

constexpr Words<nn::NormKind, 2> kNorms = {
    {{nn::NormKind::kLayer, "layer"}, {nn::NormKind::kRms, "rms"}}};
constexpr Words<nn::ActivationKind, 4> kActivations = {{{nn::ActivationKind::kGelu, "gelu"},
                                                        {nn::ActivationKind::kGeluErf, "gelu_erf"},
                                                        {nn::ActivationKind::kSwiglu, "swiglu"},
                                                        {nn::ActivationKind::kGeglu, "geglu"}}};
constexpr Words<nn::PositionKind, 2> kPositions = {
    {{nn::PositionKind::kLearned, "learned"}, {nn::PositionKind::kRotary, "rotary"}}};
constexpr Words<nn::QueryKeyNorm, 3> kQueryKeyNorms = {{{nn::QueryKeyNorm::kNone, "none"},
                                                        {nn::QueryKeyNorm::kHead, "head"},
                                                        {nn::QueryKeyNorm::kWidth, "width"}}};
constexpr Words<BlockLayout, 5> kLayouts = {{{BlockLayout::kBefore, "before"},
                                             {BlockLayout::kAfter, "after"},
                                             {BlockLayout::kBoth, "both"},
                                             {BlockLayout::kParallel, "parallel"},
                                             {BlockLayout::kParallelOneNorm, "parallel_one_norm"}}};
constexpr Words<bool, 2> kPairs = {{{false, "halves"}, {true, "adjacent"}}};

template <class Value, std::size_t kCount>
Limit one_of_words(const Words<Value, kCount>& words) {
  std::vector<std::string> choices;
  for (const auto& [value, word] : words) choices.emplace_back(word);
  return one_of(std::move(choices));
}

template <class Value, std::size_t kCount>
std::string word_of(const Words<Value, kCount>& words, Value value) {
  return std::ranges::find(words, value, [](const auto& pair) { return pair.first; })->second;
}

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

// Sets members of a model to the values of keys that are given.
class GivenKeys {
 public:
  explicit GivenKeys(const OptionValues& keys) : keys_(keys) {}

  template <class Value, std::size_t kCount>
  void word(const char* key, const Words<Value, kCount>& words, Value& value) const {
    const auto given = model_key<std::string>(keys_, key);
    for (const auto& [known, word] : words) {
      if (given == word) value = known;
    }
  }
  void real(const char* key, float& value) const {
    if (const auto given = model_key<double>(keys_, key)) value = static_cast<float>(*given);
  }
  void boolean(const char* key, bool& value) const {
    value = model_key<bool>(keys_, key).value_or(value);
  }
  void whole(const char* key, std::int64_t& value) const {
    value = model_key<int>(keys_, key).value_or(static_cast<int>(value));
  }
  void text(const char* key, std::string& value) const {
    value = model_key<std::string>(keys_, key).value_or(value);
  }
  std::optional<RotaryScaling> scaling(const char* key) const {
    const auto given = model_key<std::string>(keys_, key);
    if (!given) return {};
    try {
      return read_rotary_scaling(*given);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("model.{}: {}", key, error.what()));
    }
  }

 private:
  const OptionValues& keys_;
};

void take_choices(const OptionValues& keys, GptConfig& model) {
  const GivenKeys given(keys);
  given.word("norm", kNorms, model.norm);
  given.word("activation", kActivations, model.activation);
  given.word("positions", kPositions, model.positions);
  given.boolean("tied", model.tied);
  if (const auto bias = model_key<bool>(keys, "bias")) model.biases = nn::Biases::all(*bias);
  given.boolean("qkv_bias", model.biases.qkv);
  given.boolean("output_bias", model.biases.output);
  given.boolean("mlp_bias", model.biases.mlp);
  given.boolean("norm_bias", model.biases.norm);
  given.real("dropout", model.dropout);
  given.real("rotary_theta", model.rotary_theta);
  given.real("norm_epsilon", model.norm_epsilon);
  given.whole("head_size", model.head_size);
  given.word("block", kLayouts, model.layout);
  given.boolean("norm_plus_one", model.norm_plus_one);
  given.word("query_key_norm", kQueryKeyNorms, model.query_key_norm);
  given.real("attention_scale", model.attention_scale);
  given.real("attention_cap", model.attention_cap);
  given.whole("window", model.window);
  given.text("window_layers", model.window_layers);
  given.text("rotary_layers", model.rotary_layers);
  given.real("rotary_share", model.rotary_share);
  given.word("rotary_pairs", kPairs, model.rotary_adjacent);
  if (const auto scaling = given.scaling("rotary_scaling")) model.rotary_scaling = *scaling;
  if (const auto theta = model_key<double>(keys, "window_theta")) {
    model.window_theta = static_cast<float>(*theta);
  }
  if (const auto scaling = given.scaling("window_scaling")) model.window_scaling = scaling;
  given.real("embedding_scale", model.embedding_scale);
  given.real("residual_scale", model.residual_scale);
  given.real("logit_scale", model.logit_scale);
  given.real("logit_cap", model.logit_cap);
  model.logits = type_of_logits_key(keys);
}

// Refuses keys that would do nothing beside the others.
void check_needed(const OptionValues& keys, const GptConfig& model) {
  const auto needs = [&](const char* key, bool fits, const char* what) {
    if (fits || !keys.contains(key)) return;
    throw ConfigError(fmt::format("model.{} needs {}", key, what));
  };
  const bool rotary = model.positions == nn::PositionKind::kRotary;
  for (const char* key : {"rotary_layers", "rotary_share", "rotary_pairs", "rotary_scaling"}) {
    needs(key, rotary, "model.positions rotary");
  }
  needs("window_layers", model.window > 0, "model.window");
  needs("window_theta", model.window > 0 && rotary, "model.window and model.positions rotary");
  needs("window_scaling", model.window > 0 && rotary, "model.window and model.positions rotary");
  const bool rms = model.norm == nn::NormKind::kRms;
  needs("norm_plus_one", rms || !model.norm_plus_one, "model.norm rms");
  needs("norm_bias", !rms || !model.biases.norm, "model.norm layer: RMS norms have no bias");
}

constexpr auto kMostLayers = static_cast<std::int64_t>(limits::kLayers);

std::string shortest_pattern(const std::string& digits, std::int64_t layers) {
  std::string all(static_cast<std::size_t>(std::clamp<std::int64_t>(layers, 1, kMostLayers)), '0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = digits[i % digits.size()];
  for (std::size_t period = 1; period < all.size(); ++period) {
    bool repeats = true;
    for (std::size_t i = period; i < all.size() && repeats; ++i) {
      repeats = all[i] == all[i - period];
    }
    if (repeats) return all.substr(0, period);
  }
  return all;
}

// Writes a number as people do: 1e-05 and not the nearest double of the float.
std::string real(float number) {
  return write_value(shortest(number));
}

// The keys of choices at which two models differ, with the values of the first.
void add_choices(const GptConfig& m, const GptConfig& otherwise, OptionValues& keys) {
  const auto add = [&](const char* key, const auto& value, const auto& other, const auto& text) {
    if (value != other) keys.emplace(key, text(value));
  };
  const auto reals = [](float value) { return real(value); };
  const auto booleans = [](bool value) { return write_value(value); };
  const auto wholes = [](std::int64_t value) { return write_value(value); };
  const auto texts = [](const std::string& value) { return value; };
  add("qkv_bias", m.biases.qkv, m.biases.mlp, booleans);
  add("output_bias", m.biases.output, m.biases.mlp, booleans);
  add("norm_bias", m.biases.norm, m.biases.mlp, booleans);
  add("head_size", m.head_size, otherwise.head_size, wholes);
  add("block", m.layout, otherwise.layout,
      [](BlockLayout value) { return word_of(kLayouts, value); });
  add("norm_plus_one", m.norm_plus_one, otherwise.norm_plus_one, booleans);
  add("query_key_norm", m.query_key_norm, otherwise.query_key_norm,
      [](nn::QueryKeyNorm value) { return word_of(kQueryKeyNorms, value); });
  add("attention_scale", m.attention_scale, otherwise.attention_scale, reals);
  add("attention_cap", m.attention_cap, otherwise.attention_cap, reals);
  add("window", m.window, otherwise.window, wholes);
  add("window_layers", m.window_layers, otherwise.window_layers, texts);
  add("rotary_layers", m.rotary_layers, otherwise.rotary_layers, texts);
  add("rotary_share", m.rotary_share, otherwise.rotary_share, reals);
  add("rotary_pairs", m.rotary_adjacent, otherwise.rotary_adjacent,
      [](bool value) { return word_of(kPairs, value); });
  add("rotary_scaling", m.rotary_scaling, otherwise.rotary_scaling,
      [](const RotaryScaling& value) { return text_of(value); });
  if (m.window_theta) keys.emplace("window_theta", real(*m.window_theta));
  if (m.window_scaling) keys.emplace("window_scaling", text_of(*m.window_scaling));
  add("embedding_scale", m.embedding_scale, otherwise.embedding_scale, reals);
  add("residual_scale", m.residual_scale, otherwise.residual_scale, reals);
  add("logit_scale", m.logit_scale, otherwise.logit_scale, reals);
  add("logit_cap", m.logit_cap, otherwise.logit_cap, reals);
  write_logits_key(m.logits, keys);
}

// A vocabulary may have more rows than the data have tokens, as published ones do for the sake of
// round numbers.
std::int64_t vocabulary_of(const OptionValues& keys, const DataFacts& data,
                           std::int64_t otherwise) {
  const auto given = model_key<int>(keys, "vocabulary");
  if (given && data.vocabulary && *given > *data.vocabulary) return *given;
  return number_of_data(keys, "vocabulary", data.vocabulary, "tokens", otherwise);
}

}  // namespace

std::int64_t gpt_context(const OptionValues& keys) {
  return model_key<int>(keys, "context").value_or(static_cast<int>(preset_of(keys).context));
}

GptConfig gpt_config(const OptionValues& keys, const DataFacts& data) {
  const GptConfig preset = preset_of(keys);
  GptConfig result = preset;
  const NumbersOfKeys given(keys);
  result.layers = given.whole("layers", preset.layers);
  result.width = given.whole("width", preset.width);
  result.heads = given.whole("heads", preset.heads);
  result.context = gpt_context(keys);
  // What a preset says of heads and of the feed-forward width is of its own sizes alone.
  const bool has_preset = keys.contains("preset");
  const bool own_heads = has_preset && result.heads == preset.heads;
  const bool own_width = has_preset && result.width == preset.width;
  if (!own_heads || !own_width) result.head_size = 0;
  take_choices(keys, result);
  result.kv_heads = given.whole("kv_heads", own_heads ? preset.kv_heads : result.heads);
  const bool own_hidden = own_width && result.activation == preset.activation;
  result.hidden = given.whole(
      "hidden", own_hidden ? preset.hidden : default_hidden(result.activation, result.width));
  result.vocabulary = vocabulary_of(keys, data, preset.vocabulary);
  check_needed(keys, result);
  check(result);
  return simplest(result);
}

GptConfig simplest(GptConfig model) {
  if (model.heads <= 0) return model;  // check() says so
  const GptConfig defaults;
  if (model.norm == nn::NormKind::kRms) model.biases.norm = model.biases.mlp;
  if (model.head_size * model.heads == model.width) model.head_size = 0;
  const auto usual = 1.0 / std::sqrt(static_cast<double>(model.head_channels()));
  if (model.attention_scale == static_cast<float>(usual)) model.attention_scale = 0.0f;
  model.window_layers = shortest_pattern(model.window_layers, model.layers);
  model.rotary_layers = shortest_pattern(model.rotary_layers, model.layers);
  if (model.window == 0 || model.window_layers == "0") {
    model.window = 0;
    model.window_layers = defaults.window_layers;
  }
  if (model.positions != nn::PositionKind::kRotary) {
    model.rotary_layers = defaults.rotary_layers;
    model.rotary_share = defaults.rotary_share;
    model.rotary_adjacent = defaults.rotary_adjacent;
    model.rotary_scaling = defaults.rotary_scaling;
  }
  if (model.window == 0 || model.window_theta == model.rotary_theta ||
      model.positions != nn::PositionKind::kRotary) {
    model.window_theta.reset();
  }
  if (model.window == 0 || model.window_scaling == model.rotary_scaling ||
      model.positions != nn::PositionKind::kRotary) {
    model.window_scaling.reset();
  }
  return model;
}

OptionValues keys_of(const GptConfig& model) {
  OptionValues keys = {{"layers", write_value(model.layers)},
                       {"width", write_value(model.width)},
                       {"heads", write_value(model.heads)},
                       {"kv_heads", write_value(model.kv_heads)},
                       {"hidden", write_value(model.hidden)},
                       {"vocabulary", write_value(model.vocabulary)},
                       {"context", write_value(model.context)},
                       {"norm", word_of(kNorms, model.norm)},
                       {"activation", word_of(kActivations, model.activation)},
                       {"positions", word_of(kPositions, model.positions)},
                       {"tied", write_value(model.tied)},
                       {"bias", write_value(model.biases.mlp)},
                       {"dropout", real(model.dropout)},
                       {"norm_epsilon", real(model.norm_epsilon)},
                       {"rotary_theta", real(model.rotary_theta)}};
  add_choices(model, GptConfig(), keys);
  return keys;
}

void add_gpt_keys(Options& options, OptionValues& keys) {
  const KeyAdder model(options, keys);
  const Limit scale = between(limits::kLeastReal, limits::kReal);
  const Limit or_none = between(0, limits::kReal);
  model.add<std::string>("preset", "",
                         "a published model's sizes, as gpt2-124m; the other model keys change it",
                         not_empty(), OnChange::kCompared);
  model.add<int>("layers", "blocks", "transformer blocks", between(1, limits::kLayers));
  model.add<int>("width", "channels", "width of the residual stream", between(1, limits::kWidth));
  model.add<int>("heads", "heads", "attention (query) heads", between(1, limits::kWidth));
  model.add<int>("kv_heads", "heads",
                 "key and value heads, each shared by several query heads; auto: as many as heads",
                 between(1, limits::kWidth));
  model.add<int>("head_size", "channels", "width of a head; auto: width / heads",
                 between(1, limits::kWidth));
  model.add<int>("hidden", "channels",
                 "width inside the MLP; auto: the usual one for the width and the activation",
                 between(1, limits::kHidden));
  model.add<int>("vocabulary", "tokens", "size of the vocabulary; auto: that of the data",
                 between(1, limits::kTokens));
  model.add<int>("context", "tokens", "length of a training sequence", between(1, limits::kTokens));
  model.add<std::string>("block", "", "where norms stand in a block", one_of_words(kLayouts));
  model.add<std::string>("norm", "", "normalisation", one_of_words(kNorms));
  model.add<double>("norm_epsilon", "", "added to the variance that a norm divides by",
                    between(limits::kLeastReal, 1));
  model.add<bool>("norm_plus_one", "", "RMS norms multiply by 1 + weight", {});
  model.add<std::string>("query_key_norm", "", "RMS norms of queries and keys",
                         one_of_words(kQueryKeyNorms));
  model.add<std::string>("activation", "", "of the MLP", one_of_words(kActivations));
  model.add<std::string>("positions", "", "how positions enter", one_of_words(kPositions));
  model.add<bool>("tied", "", "one matrix for token embedding and output head", {});
  model.add<bool>("bias", "", "biases in linear layers and layer norms", {});
  model.add<bool>("qkv_bias", "", "those of queries, keys and values; auto: as bias", {});
  model.add<bool>("output_bias", "", "that of attention's output; auto: as bias", {});
  model.add<bool>("mlp_bias", "", "those of the MLP; auto: as bias", {});
  model.add<bool>("norm_bias", "", "those of layer norms; auto: as bias", {});
  model.add<double>("dropout", "probability", "share of activations zeroed in training",
                    at_least_and_below(0, 1));
  model.add<double>("attention_scale", "", "multiplies scores; 0: 1 / sqrt(head size)", or_none);
  model.add<double>("attention_cap", "", "cap * tanh(score / cap); 0: scores as they are", or_none);
  model.add<int>("window", "tokens", "keys that a position reads; 0: all",
                 between(0, limits::kTokens));
  model.add<std::string>("window_layers", "", "1: the layer has the window; repeated, as 111110",
                         not_empty());
  model.add<double>("rotary_theta", "", "base of the rotary positions' angles", scale);
  model.add<std::string>("rotary_scaling", "", "of the angles: none, or a kind and its fields",
                         not_empty());
  model.add<double>("rotary_share", "", "part of a head's channels that turns",
                    between(limits::kLeastReal, 1));
  model.add<std::string>("rotary_pairs", "", "channels that turn together", one_of_words(kPairs));
  model.add<std::string>("rotary_layers", "", "1: the layer's queries and keys turn; repeated",
                         not_empty());
  model.add<double>("window_theta", "", "rotary_theta of layers with a window", scale);
  model.add<std::string>("window_scaling", "", "rotary_scaling of layers with a window",
                         not_empty());
  model.add<double>("embedding_scale", "", "multiplies embeddings", scale);
  model.add<double>("residual_scale", "", "multiplies what a branch adds to the stream", scale);
  model.add<double>("logit_scale", "", "multiplies logits", scale);
  model.add<double>("logit_cap", "", "cap * tanh(logit / cap); 0: logits as they are", or_none);
  add_logits_key(model);
}

void check_gpt_keys(const OptionValues& keys) {
  const auto width = model_key<int>(keys, "width"), heads = model_key<int>(keys, "heads");
  const auto head_size = model_key<int>(keys, "head_size");
  if (!head_size) check_divides("model.heads", heads, "model.width", width);
  check_divides("model.kv_heads", model_key<int>(keys, "kv_heads"), "model.heads", heads);
  const bool rotary = model_key<std::string>(keys, "positions") == "rotary";
  if (rotary && !head_size && heads && width && *width / *heads % 2 != 0) {
    throw ConfigError(
        fmt::format("model.positions = rotary turns pairs of channels, but model.width ({}) / "
                    "model.heads ({}) is {}, an odd number",
                    *width, *heads, *width / *heads));
  }
}

}  // namespace trireme::models
