#include "models/gpt/transformers_names.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

#include "models/foreign_config.h"

namespace trireme::models {
namespace {

using All = std::vector<ForeignTensor>;

// Their Conv1D NAME, whose weight is (in, out), over our layers, one after the other.
void add_conv1d(All& all, const std::string& name, const std::vector<std::string>& ours,
                const Shape& shape) {
  std::vector<std::string> weights, biases;
  for (const std::string& layer : ours) {
    weights.push_back(layer + ".weight");
    biases.push_back(layer + ".bias");
  }
  all.push_back(fused_transposed(name + ".weight", weights, std::vector(ours.size(), shape)));
  all.push_back(
      fused_transposed(name + ".bias", biases, std::vector(ours.size(), Shape{shape[0]})));
}

bool is_gpt2(const GptConfig& c) {
  return c.norm == nn::NormKind::kLayer && c.activation == nn::ActivationKind::kGelu &&
         c.positions == nn::PositionKind::kLearned && c.bias && c.kv_heads == c.heads;
}

bool is_llama(const GptConfig& c) {
  return c.norm == nn::NormKind::kRms && c.activation == nn::ActivationKind::kSwiglu &&
         c.positions == nn::PositionKind::kRotary;
}

std::string gpt2_config(const GptConfig& c) {
  return Json::object({{"architectures", Json::array({"GPT2LMHeadModel"})},
                       {"model_type", "gpt2"},
                       {"vocab_size", c.vocabulary},
                       {"n_positions", c.context},
                       {"n_embd", c.width},
                       {"n_layer", c.layers},
                       {"n_head", c.heads},
                       {"n_inner", c.hidden},
                       {"activation_function", "gelu_new"},
                       {"layer_norm_epsilon", shortest(c.norm_epsilon)},
                       {"attn_pdrop", 0.0},
                       {"embd_pdrop", 0.0},
                       {"resid_pdrop", 0.0},
                       {"tie_word_embeddings", c.tied},
                       {"bos_token_id", Json()},
                       {"eos_token_id", Json()}})
             .dump(2) +
         "\n";
}

ForeignModel gpt2_model(const GptConfig& c) {
  ForeignModel model{.format = "GPT-2 as transformers has it",
                     .tensors = {},
                     .prefix = "transformer.",
                     .unused = {".attn.bias", ".attn.masked_bias"}};  // masks
  All& all = model.tensors;
  const Shape vector = {c.width}, square = {c.width, c.width};
  const auto add_norm = [&](const std::string& name, const std::string& ours) {
    all.push_back(same_tensor(name + ".weight", ours + ".weight", vector));
    all.push_back(same_tensor(name + ".bias", ours + ".bias", vector));
  };
  all.push_back(same_tensor("transformer.wte.weight", "embedding.weight", {c.vocabulary, c.width}));
  all.push_back(same_tensor("transformer.wpe.weight", "positions.weight", {c.context, c.width}));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string name = fmt::format("transformer.h.{}", layer);
    const std::string ours = fmt::format("blocks.{}", layer);
    add_norm(name + ".ln_1", ours + ".norm1");
    add_conv1d(all, name + ".attn.c_attn",
               {ours + ".attention.query", ours + ".attention.key", ours + ".attention.value"},
               square);
    add_conv1d(all, name + ".attn.c_proj", {ours + ".attention.output"}, square);
    add_norm(name + ".ln_2", ours + ".norm2");
    add_conv1d(all, name + ".mlp.c_fc", {ours + ".mlp.up"}, {c.hidden, c.width});
    add_conv1d(all, name + ".mlp.c_proj", {ours + ".mlp.down"}, {c.width, c.hidden});
  }
  add_norm("transformer.ln_f", "norm");
  if (c.tied) {
    model.copies.emplace_back("lm_head.weight", "transformer.wte.weight");
    model.apart = {{"tied", "false"}};
  } else {
    all.push_back(same_tensor("lm_head.weight", "head.weight", {c.vocabulary, c.width}));
  }
  model.config = [c] { return gpt2_config(c); };
  return model;
}

std::string llama_config(const GptConfig& c) {
  const double theta = shortest(c.rotary_theta);
  // rope_theta is what transformers reads up to version 4, rope_parameters what it reads later.
  return Json::object(
             {{"architectures", Json::array({"LlamaForCausalLM"})},
              {"model_type", "llama"},
              {"vocab_size", c.vocabulary},
              {"max_position_embeddings", c.context},
              {"hidden_size", c.width},
              {"intermediate_size", c.hidden},
              {"num_hidden_layers", c.layers},
              {"num_attention_heads", c.heads},
              {"num_key_value_heads", c.kv_heads},
              {"hidden_act", "silu"},
              {"rms_norm_eps", shortest(c.norm_epsilon)},
              {"rope_theta", theta},
              {"rope_parameters", Json::object({{"rope_theta", theta}, {"rope_type", "default"}})},
              {"attention_bias", c.bias},
              {"mlp_bias", c.bias},
              {"tie_word_embeddings", c.tied},
              {"bos_token_id", Json()},
              {"eos_token_id", Json()}})
             .dump(2) +
         "\n";
}

void add_llama_layer(All& all, const GptConfig& c, std::int64_t layer) {
  const Shape vector = {c.width};
  const std::int64_t kv_width = c.width / c.heads * c.kv_heads;
  const std::string name = fmt::format("model.layers.{}", layer);
  const std::string ours = fmt::format("blocks.{}", layer);
  const auto add = [&](const std::string& theirs, const std::string& layer_of_ours,
                       const Shape& shape) {
    add_same_layer(all, name + theirs, ours + layer_of_ours, shape, c.bias);
  };
  all.push_back(same_tensor(name + ".input_layernorm.weight", ours + ".norm1.weight", vector));
  add(".self_attn.q_proj", ".attention.query", {c.width, c.width});
  add(".self_attn.k_proj", ".attention.key", {kv_width, c.width});
  add(".self_attn.v_proj", ".attention.value", {kv_width, c.width});
  add(".self_attn.o_proj", ".attention.output", {c.width, c.width});
  all.push_back(
      same_tensor(name + ".post_attention_layernorm.weight", ours + ".norm2.weight", vector));
  add(".mlp.gate_proj", ".mlp.gate", {c.hidden, c.width});
  add(".mlp.up_proj", ".mlp.up", {c.hidden, c.width});
  add(".mlp.down_proj", ".mlp.down", {c.width, c.hidden});
}

ForeignModel llama_model(const GptConfig& c) {
  ForeignModel model{.format = "Llama as transformers has it",
                     .tensors = {},
                     .prefix = "model.",
                     .unused = {".rotary_emb.inv_freq"}};
  All& all = model.tensors;
  all.push_back(
      same_tensor("model.embed_tokens.weight", "embedding.weight", {c.vocabulary, c.width}));
  for (std::int64_t layer = 0; layer < c.layers; ++layer) add_llama_layer(all, c, layer);
  all.push_back(same_tensor("model.norm.weight", "norm.weight", {c.width}));
  if (c.tied) {
    model.copies.emplace_back("lm_head.weight", "model.embed_tokens.weight");
    model.apart = {{"tied", "false"}};
  } else {
    all.push_back(same_tensor("lm_head.weight", "head.weight", {c.vocabulary, c.width}));
  }
  model.config = [c] { return llama_config(c); };
  return model;
}

// The base of the rotary angles, in the words of every version of transformers.
double theta_of(ForeignConfig& config, std::string_view whose) {
  config.refuse("rope_scaling", whose);
  double theta = config.number("rope_theta", 10000.0);
  if (const Json* json = config.object("rope_parameters")) {
    ForeignConfig parameters(*json);
    parameters.require("rope_type", "default", whose);
    parameters.require("type", "default", whose);
    parameters.require("partial_rotary_factor", 1.0, whose);
    theta = parameters.number("rope_theta", theta);
    for (const std::string& field : parameters.rest()) parameters.refuse(field, whose);
  }
  return theta;
}

}  // namespace

bool has_transformers_names(const GptConfig& config) {
  return is_gpt2(config) || is_llama(config);
}

ForeignModel transformers_model(const GptConfig& config) {
  if (is_gpt2(config)) return gpt2_model(config);
  if (is_llama(config)) return llama_model(config);
  throw ConfigError(
      "this model is neither a GPT-2 (model.norm layer, model.activation gelu, model.positions "
      "learned, model.bias true, as many model.kv_heads as model.heads) nor a Llama (model.norm "
      "rms, model.activation swiglu, model.positions rotary), so other programs have no names for "
      "it; --format onnx can hold it");
}

ForeignKeys keys_of_gpt2(const Json& json) {
  constexpr std::string_view kWhose = "our GPT-2 models";
  ForeignConfig config(json);
  const std::int64_t width = config.integer("n_embd"), heads = config.integer("n_head");
  if (config.text("activation_function", "gelu_new") != "gelu_pytorch_tanh") {  // the same
    config.require("activation_function", "gelu_new", kWhose);
  }
  config.require("scale_attn_weights", true, kWhose);
  config.require("scale_attn_by_inverse_layer_idx", false, kWhose);
  config.require("add_cross_attention", false, kWhose);
  OptionValues keys = {{"layers", write_value(config.integer("n_layer"))},
                       {"width", write_value(width)},
                       {"heads", write_value(heads)},
                       {"kv_heads", write_value(heads)},
                       {"hidden", write_value(config.integer("n_inner", 4 * width))},
                       {"vocabulary", write_value(config.integer("vocab_size"))},
                       {"context", write_value(config.integer("n_positions"))},
                       {"norm", "layer"},
                       {"norm_epsilon", write_value(config.number("layer_norm_epsilon", 1e-5))},
                       {"activation", "gelu"},
                       {"positions", "learned"},
                       {"tied", write_value(config.boolean("tie_word_embeddings", true))},
                       {"bias", "true"}};
  return {std::move(keys), config.rest()};
}

ForeignKeys keys_of_llama(const Json& json) {
  constexpr std::string_view kWhose = "our Llama models";
  ForeignConfig config(json);
  const std::int64_t width = config.integer("hidden_size");
  const std::int64_t heads = config.integer("num_attention_heads");
  config.require("hidden_act", "silu", kWhose);
  config.refuse("sliding_window", kWhose);
  config.require("partial_rotary_factor", 1.0, kWhose);
  if (heads > 0) config.require("head_dim", width / heads, kWhose);
  const bool bias = config.boolean("attention_bias", false);
  if (config.boolean("mlp_bias", false) != bias) {
    throw ConfigError(
        fmt::format("config.json: attention_bias is {}, but mlp_bias is {}: our Llama models have "
                    "biases in all linear layers or in none",
                    bias, !bias));
  }
  OptionValues keys = {{"layers", write_value(config.integer("num_hidden_layers"))},
                       {"width", write_value(width)},
                       {"heads", write_value(heads)},
                       {"kv_heads", write_value(config.integer("num_key_value_heads", heads))},
                       {"hidden", write_value(config.integer("intermediate_size"))},
                       {"vocabulary", write_value(config.integer("vocab_size"))},
                       {"context", write_value(config.integer("max_position_embeddings"))},
                       {"norm", "rms"},
                       {"norm_epsilon", write_value(config.number("rms_norm_eps", 1e-6))},
                       {"activation", "swiglu"},
                       {"positions", "rotary"},
                       {"rotary_theta", write_value(theta_of(config, kWhose))},
                       {"tied", write_value(config.boolean("tie_word_embeddings", false))},
                       {"bias", write_value(bias)}};
  return {std::move(keys), config.rest()};
}

}  // namespace trireme::models
