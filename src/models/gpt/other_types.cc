// Decoders whose blocks differ from Llama's: norms elsewhere, parallel branches, MLPs without a
// gate.
#include "models/gpt/model_types.h"

namespace trireme::models {
namespace {

using Fused = NamedLayer::Fused;

void gpt2(ConfigFields& f, GptConfig& c) {
  c.norm = nn::NormKind::kLayer;
  c.positions = nn::PositionKind::kLearned;
  c.biases = nn::Biases::all(true);
  f.integer("vocab_size", c.vocabulary, 50257);
  f.integer("n_positions", c.context, 1024);
  f.integer("n_embd", c.width, 768);
  f.integer("n_layer", c.layers, 12);
  f.integer("n_head", c.heads, 12);
  c.kv_heads = c.heads;
  f.integer_or_null("n_inner", c.hidden, 0);
  if (c.hidden == 0) c.hidden = 4 * c.width;
  f.activation("activation_function", c.activation, "gelu_new", false);
  if (c.activation == nn::ActivationKind::kGelu) f.write("activation_function", "gelu_new");
  f.number("layer_norm_epsilon", c.norm_epsilon, 1e-5);
  f.boolean("tie_word_embeddings", c.tied, true);
  f.fixed("scale_attn_weights", true);
  f.fixed("scale_attn_by_inverse_layer_idx", false);
  f.fixed("add_cross_attention", false);
  for (const char* share : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) f.write(share, 0.0);
}

TensorNames gpt2_names() {
  return {.prefix = "transformer.",
          .embedding = "wte",
          .positions = "wpe",
          .layers = "h",
          .layer = {{"ln_1", {"norm1"}},
                    {"attn.c_attn",
                     {"attention.query", "attention.key", "attention.value"},
                     Fused::kTransposed},
                    {"attn.c_proj", {"attention.output"}, Fused::kTransposed},
                    {"ln_2", {"norm2"}},
                    {"mlp.c_fc", {"mlp.up"}, Fused::kTransposed},
                    {"mlp.c_proj", {"mlp.down"}, Fused::kTransposed}},
          .norm = "ln_f",
          .unused = {".attn.bias", ".attn.masked_bias"}};  // masks
}

void gpt_neox(ConfigFields& f, GptConfig& c) {
  c.norm = nn::NormKind::kLayer;
  if (f.reading()) c.biases = nn::Biases::all(true);
  add_sizes(f, c, {50432, 6144, 24576, 44, 64, -1, 2048, 1e-5}, "layer_norm_eps");
  f.activation("hidden_act", c.activation, "gelu", false);
  f.boolean("attention_bias", c.biases.qkv, true);
  c.biases.output = c.biases.qkv;
  bool parallel = c.layout == BlockLayout::kParallel;
  f.boolean("use_parallel_residual", parallel, true);
  c.layout = parallel ? BlockLayout::kParallel : BlockLayout::kBefore;
  add_rotary(f, c, 10000.0,
             {.theta = "rotary_emb_base",
              .partial = true,
              .share = "rotary_pct",
              .share_otherwise = 0.25});
}

TensorNames gpt_neox_names() {
  return {.prefix = "gpt_neox.",
          .embedding = "embed_in",
          .layer = {{"input_layernorm", {"norm1"}},
                    {"post_attention_layernorm", {"norm2"}},
                    {"attention.query_key_value",
                     {"attention.query", "attention.key", "attention.value"},
                     Fused::kByHead},
                    {"attention.dense", {"attention.output"}},
                    {"mlp.dense_h_to_4h", {"mlp.up"}},
                    {"mlp.dense_4h_to_h", {"mlp.down"}}},
          .norm = "final_layer_norm",
          .head = "embed_out",
          .older_head = "lm_head",
          .unused = {".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"}};
}

void starcoder2(ConfigFields& f, GptConfig& c) {
  c.norm = nn::NormKind::kLayer;
  add_sizes(f, c, {49152, 3072, 12288, 30, 24, 2, 4096, 1e-5, true}, "norm_epsilon");
  add_head_size(f, c, 0);
  f.activation("hidden_act", c.activation, "gelu_pytorch_tanh", false);
  bool bias = c.biases.mlp;
  f.boolean("use_bias", bias, true);
  c.biases = {.qkv = bias, .output = bias, .mlp = bias, .norm = true};
  f.integer_or_null("sliding_window", c.window, 0);
  add_rotary(f, c, 10000.0);
}

TensorNames starcoder2_names() {
  TensorNames names = names_with_norms_before();
  for (NamedLayer& layer : names.layer) {
    if (layer.theirs == "mlp.up_proj") layer.theirs = "mlp.c_fc";
    if (layer.theirs == "mlp.down_proj") layer.theirs = "mlp.c_proj";
  }
  return names;
}

void add_olmo(ConfigFields& f, GptConfig& c) {
  begin_llama(c);
  if (f.reading()) c.biases = nn::Biases::all(false);
  c.layout = BlockLayout::kAfter;
  c.query_key_norm = nn::QueryKeyNorm::kWidth;
  add_sizes(f, c, {50304, 4096, 11008, 32, 32, 0, 2048, 1e-5});
  add_head_size(f, c, 0);
  f.activation("hidden_act", c.activation, "silu", true);
  f.boolean("attention_bias", c.biases.qkv, false);
  c.biases.output = c.biases.qkv;
}

void olmo2(ConfigFields& f, GptConfig& c) {
  add_olmo(f, c);
  add_rotary(f, c, 10000.0);
}

void olmo3(ConfigFields& f, GptConfig& c) {
  add_olmo(f, c);
  f.integer_or_null("sliding_window", c.window, 4096);
  add_layer_types(f, c, [](std::int64_t layer) { return (layer + 1) % 4 != 0; });
  add_rotary(f, c, 500000.0, {.by_layer_type = true});
}

void add_cohere(ConfigFields& f, GptConfig& c) {
  begin_llama(c);
  c.norm = nn::NormKind::kLayer;
  if (f.reading()) c.biases = nn::Biases::all(false);
  c.layout = BlockLayout::kParallelOneNorm;
  c.rotary_adjacent = true;
  add_sizes(f, c, {256000, 8192, 22528, 40, 64, 0, 8192, 1e-5, true}, "layer_norm_eps");
  add_head_size(f, c, 0);
  f.activation("hidden_act", c.activation, "silu", true);
  f.boolean("attention_bias", c.biases.qkv, false);
  c.biases.output = c.biases.qkv;
  f.number("logit_scale", c.logit_scale, 0.0625);
}

void cohere(ConfigFields& f, GptConfig& c) {
  add_cohere(f, c);
  f.fixed("use_qk_norm", false);
  add_rotary(f, c, 500000.0);
}

// Layers without a window know no positions.
void cohere2(ConfigFields& f, GptConfig& c) {
  add_cohere(f, c);
  f.integer_or_null("sliding_window", c.window, 4096);
  const std::int64_t pattern = window_pattern(f, 4);
  add_layer_types(f, c, [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  c.rotary_layers = c.window > 0 ? c.window_layers : "0";
  add_rotary(f, c, 10000.0);
}

TensorNames cohere_names() {
  return llama_names({{"input_layernorm", {"norm1"}}});
}

}  // namespace

std::vector<ModelType> other_types() {
  return {{"gpt2", "GPT-2", "GPT2LMHeadModel", gpt2, gpt2_names},
          {"gpt_neox", "GPT-NeoX", "GPTNeoXForCausalLM", gpt_neox, gpt_neox_names},
          {"starcoder2", "StarCoder 2", "Starcoder2ForCausalLM", starcoder2, starcoder2_names},
          {"olmo2", "OLMo 2", "Olmo2ForCausalLM", olmo2, names_with_norms_after},
          {"olmo3", "OLMo 3", "Olmo3ForCausalLM", olmo3, names_with_norms_after},
          {"cohere", "Cohere", "CohereForCausalLM", cohere, cohere_names},
          {"cohere2", "Cohere 2", "Cohere2ForCausalLM", cohere2, cohere_names}};
}

}  // namespace trireme::models
