// Gemma: norms that multiply by 1 + weight, and embeddings times the root of the width.
#include <cmath>

#include "models/gpt/model_types.h"

namespace trireme::models {
namespace {

void add_gemma(ConfigFields& f, GptConfig& c, const ClassDefaults& defaults) {
  begin_llama(c);
  if (f.reading()) c.biases = nn::Biases::all(false);
  c.norm_plus_one = true;
  add_sizes(f, c, defaults);
  add_head_size(f, c, 256);
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.width)));
  f.boolean("attention_bias", c.biases.qkv, false);
  c.biases.output = c.biases.qkv;
  f.fixed("use_bidirectional_attention", false);
}

void gemma(ConfigFields& f, GptConfig& c) {
  add_gemma(f, c, {256000, 3072, 24576, 28, 16, 16, 8192, 1e-6, true});
  // The first files say gelu and mean that by tanh.
  if (f.reading() && f.from().text("hidden_act", "gelu") == "gelu") {
    c.activation = nn::ActivationKind::kGeglu;
  } else {
    f.activation("hidden_act", c.activation, "gelu_pytorch_tanh", true);
  }
  if (f.reading()) f.from().ignore({"hidden_activation"});
  add_rotary(f, c, 10000.0);
}

// Scores are divided by the root of query_pre_attn_scalar, a whole number.
void add_score_scale(ConfigFields& f, GptConfig& c) {
  const auto scale_of = [](std::int64_t scalar) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(scalar)));
  };
  std::int64_t scalar = c.head_channels();
  if (c.attention_scale != 0.0f) {
    const double scale = c.attention_scale;
    scalar = std::llround(1.0 / (scale * scale));
  }
  f.integer("query_pre_attn_scalar", scalar, 256);
  c.attention_scale = scale_of(scalar);
}

void add_gemma2(ConfigFields& f, GptConfig& c, double logit_cap, std::int64_t pattern) {
  c.layout = BlockLayout::kBoth;
  f.activation("hidden_activation", c.activation, "gelu_pytorch_tanh", true);
  add_score_scale(f, c);
  f.number_or_null("final_logit_softcapping", c.logit_cap, logit_cap);
  f.integer_or_null("sliding_window", c.window, 4096);
  add_layer_types(f, c, [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
}

void gemma2(ConfigFields& f, GptConfig& c) {
  add_gemma(f, c, {256000, 2304, 9216, 26, 8, 4, 8192, 1e-6, true});
  add_gemma2(f, c, 30.0, 2);
  f.number_or_null("attn_logit_softcapping", c.attention_cap, 50.0);
  add_rotary(f, c, 10000.0);
}

void gemma3_text(ConfigFields& f, GptConfig& c) {
  add_gemma(f, c, {262208, 2304, 9216, 26, 8, 4, 131072, 1e-6, true});
  c.query_key_norm = nn::QueryKeyNorm::kHead;
  add_gemma2(f, c, 0.0, window_pattern(f, 6));
  // Its class has the field, and its model does not use it.
  f.write("attn_logit_softcapping", Json());
  if (f.reading()) f.from().refuse("attn_logit_softcapping", f.whose());
  add_rotary(f, c, 1000000.0,
             {.by_layer_type = true,
              .window_theta = "rope_local_base_freq",
              .window_theta_otherwise = 10000.0});
}

TensorNames gemma2_names() {
  return llama_names({{"input_layernorm", {"norm1"}},
                      {"post_attention_layernorm", {"norm1_after"}},
                      {"pre_feedforward_layernorm", {"norm2"}},
                      {"post_feedforward_layernorm", {"norm2_after"}}});
}

}  // namespace

std::vector<ModelType> gemma_types() {
  return {{"gemma", "Gemma", "GemmaForCausalLM", gemma, names_with_norms_before},
          {"gemma2", "Gemma 2", "Gemma2ForCausalLM", gemma2, gemma2_names},
          {"gemma3_text", "Gemma 3", "Gemma3ForCausalLM", gemma3_text, gemma2_names}};
}

}  // namespace trireme::models
