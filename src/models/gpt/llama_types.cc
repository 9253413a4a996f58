// Llama and its nearest relatives.
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

#include "models/gpt/model_types.h"

namespace trireme::models {

void begin_llama(GptConfig& c) {
  c.norm = nn::NormKind::kRms;
  c.positions = nn::PositionKind::kRotary;
  if (!nn::is_gated(c.activation)) c.activation = nn::ActivationKind::kSwiglu;
}

TensorNames llama_names(std::vector<NamedLayer> norms) {
  TensorNames names;
  names.layer = {{"self_attn.q_proj", {"attention.query"}},
                 {"self_attn.k_proj", {"attention.key"}},
                 {"self_attn.v_proj", {"attention.value"}},
                 {"self_attn.q_norm", {"attention.query_norm"}},
                 {"self_attn.k_norm", {"attention.key_norm"}},
                 {"self_attn.o_proj", {"attention.output"}},
                 {"mlp.gate_proj", {"mlp.gate"}},
                 {"mlp.up_proj", {"mlp.up"}},
                 {"mlp.down_proj", {"mlp.down"}}};
  names.layer.insert(names.layer.begin(), norms.begin(), norms.end());
  return names;
}

TensorNames names_with_norms_before() {
  return llama_names({{"input_layernorm", {"norm1"}}, {"post_attention_layernorm", {"norm2"}}});
}

TensorNames names_with_norms_after() {
  return llama_names({{"post_attention_layernorm", {"norm1_after"}},
                      {"post_feedforward_layernorm", {"norm2_after"}}});
}

namespace {

// What the types of this file share.
void add_llama(ConfigFields& f, GptConfig& c, const ClassDefaults& defaults,
               std::int64_t head_size = 0) {
  begin_llama(c);
  if (f.reading()) c.biases = nn::Biases::all(false);
  add_sizes(f, c, defaults);
  add_head_size(f, c, head_size);
  f.activation("hidden_act", c.activation, "silu", true);
}

void add_attention_bias(ConfigFields& f, GptConfig& c) {
  f.boolean("attention_bias", c.biases.qkv, false);
  c.biases.output = c.biases.qkv;
}

void llama(ConfigFields& f, GptConfig& c) {
  add_llama(f, c, {32000, 4096, 11008, 32, 32, 0, 2048});
  add_attention_bias(f, c);
  f.boolean("mlp_bias", c.biases.mlp, false);
  add_rotary(f, c, 10000.0);
  if (f.reading()) f.from().refuse("sliding_window", f.whose());
}

// A window in all layers, unless it is null.
void add_window_of_all(ConfigFields& f, GptConfig& c, std::int64_t otherwise) {
  f.integer_or_null("sliding_window", c.window, otherwise);
  if (f.reading()) f.from().refuse("layer_types", f.whose());
}

void mistral(ConfigFields& f, GptConfig& c) {
  add_llama(f, c, {32000, 4096, 14336, 32, 32, 8, 131072});
  add_window_of_all(f, c, 4096);
  add_rotary(f, c, 10000.0);
}

void ministral3(ConfigFields& f, GptConfig& c) {
  add_llama(f, c, {131072, 4096, 14336, 34, 32, 8, 262144, 1e-5}, 128);
  add_window_of_all(f, c, 0);
  if (f.reading() && f.from().value("rope_parameters") == nullptr) {
    throw ConfigError("config.json: has no rope_parameters, without which this is no Ministral 3");
  }
  add_rotary(f, c, 10000.0, {.query_growth = true});
}

// Qwen's windows are in the layers from max_window_layers on, and only if use_sliding_window.
void add_qwen_window(ConfigFields& f, GptConfig& c) {
  bool used = c.window > 0;
  f.boolean("use_sliding_window", used, false);
  f.integer_or_null("sliding_window", c.window, 4096);
  if (!used) c.window = 0;
  std::int64_t first = c.layers;
  f.integer("max_window_layers", first, 28);
  add_layer_types(f, c, [&](std::int64_t layer) { return c.window > 0 && layer >= first; });
}

void qwen2(ConfigFields& f, GptConfig& c) {
  add_llama(f, c, {151936, 4096, 22016, 32, 32, 32, 32768});
  c.biases = {.qkv = true, .output = false, .mlp = false, .norm = false};
  add_qwen_window(f, c);
  add_rotary(f, c, 10000.0);
}

void qwen3(ConfigFields& f, GptConfig& c) {
  add_llama(f, c, {151936, 4096, 22016, 32, 32, 32, 32768}, 128);
  c.query_key_norm = nn::QueryKeyNorm::kHead;
  add_attention_bias(f, c);
  add_qwen_window(f, c);
  add_rotary(f, c, 10000.0);
}

void granite(ConfigFields& f, GptConfig& c) {
  add_llama(f, c, {32000, 4096, 11008, 32, 32, 0, 2048});
  add_attention_bias(f, c);
  f.boolean("mlp_bias", c.biases.mlp, false);
  f.number("embedding_multiplier", c.embedding_scale, 1.0);
  f.number("residual_multiplier", c.residual_scale, 1.0);
  float scale = c.attention_scale;
  if (scale == 0.0f) scale = 1.0f / std::sqrt(static_cast<float>(c.head_channels()));
  f.number("attention_multiplier", scale, 1.0);
  c.attention_scale = scale;
  float divisor = 1.0f / c.logit_scale;
  f.number("logits_scaling", divisor, 1.0);
  c.logit_scale = 1.0f / divisor;
  add_rotary(f, c, 10000.0);
}

void phi3(ConfigFields& f, GptConfig& c) {
  add_llama(f, c, {32064, 3072, 8192, 32, 32, 0, 4096, 1e-5});
  f.fixed("attention_bias", false);
  add_window_of_all(f, c, 0);
  add_rotary(f, c, 10000.0, {.partial = true, .yarn_is_long = true, .original_otherwise = 4096});
}

TensorNames phi3_names() {
  TensorNames names = names_with_norms_before();
  std::erase_if(names.layer, [](const NamedLayer& layer) {
    return layer.theirs.starts_with("self_attn") || layer.theirs.starts_with("mlp");
  });
  for (NamedLayer layer : std::vector<NamedLayer>{
           {"self_attn.qkv_proj", {"attention.query", "attention.key", "attention.value"}},
           {"self_attn.o_proj", {"attention.output"}},
           {"mlp.gate_up_proj", {"mlp.gate", "mlp.up"}},
           {"mlp.down_proj", {"mlp.down"}}}) {
    names.layer.push_back(std::move(layer));
  }
  return names;
}

// no_rope_layers has a 1 for each layer whose queries and keys turn.
void add_turning_layers(ConfigFields& f, GptConfig& c) {
  constexpr const char* kField = "no_rope_layers";
  if (!f.reading()) {
    Json list = Json::array();
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      const std::string& digits = c.rotary_layers;
      list.push_back(digits[static_cast<std::size_t>(layer) % digits.size()] == '1' ? 1 : 0);
    }
    f.write(kField, std::move(list));
    return;
  }
  const std::int64_t interval = f.from().integer("no_rope_layer_interval", 4);
  if (interval < 1) throw ConfigError("config.json: no_rope_layer_interval is below 1");
  c.rotary_layers =
      layer_digits(c.layers, [&](std::int64_t layer) { return (layer + 1) % interval != 0; });
  const Json* list = f.from().value(kField);
  if (list == nullptr) return;
  c.rotary_layers.clear();
  for (const Json& one : list->is_array() ? list->items() : Json::Array()) {
    c.rotary_layers += one.dump() == "0" ? '0' : '1';
  }
  if (std::ssize(c.rotary_layers) < c.layers) {
    throw ConfigError("config.json: no_rope_layers has fewer numbers than there are layers");
  }
}

void smollm3(ConfigFields& f, GptConfig& c) {
  add_llama(f, c, {128256, 2048, 11008, 36, 16, 4, 32768, 1e-6, true});
  add_attention_bias(f, c);
  f.boolean("mlp_bias", c.biases.mlp, false);
  add_turning_layers(f, c);
  bool used = c.window > 0;
  f.boolean("use_sliding_window", used, false);
  f.integer_or_null("sliding_window", c.window, 0);
  if (!used) c.window = 0;
  add_layer_types(f, c, [&](std::int64_t layer) {
    return c.window > 0 && c.rotary_layers[static_cast<std::size_t>(layer)] == '0';
  });
  add_rotary(f, c, 2000000.0);
}

}  // namespace

std::vector<ModelType> llama_types() {
  const auto names = names_with_norms_before;
  return {{"llama", "Llama", "LlamaForCausalLM", llama, names},
          {"mistral", "Mistral", "MistralForCausalLM", mistral, names},
          {"ministral3", "Ministral 3", "Ministral3ForCausalLM", ministral3, names},
          {"qwen2", "Qwen 2", "Qwen2ForCausalLM", qwen2, names},
          {"qwen3", "Qwen 3", "Qwen3ForCausalLM", qwen3, names},
          {"granite", "Granite", "GraniteForCausalLM", granite, names},
          {"phi3", "Phi-3", "Phi3ForCausalLM", phi3, phi3_names},
          {"smollm3", "SmolLM3", "SmolLM3ForCausalLM", smollm3, names}};
}

}  // namespace trireme::models
