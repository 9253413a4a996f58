// What published decoders do otherwise than GPT-2 and Llama, in mixtures that have each choice of
// models::GptConfig in some model.
#pragma once

#include <cmath>

#include "models/gpt/gpt.h"

namespace trireme::testing {

struct DecoderChoices {
  const char* name;
  void (*apply)(models::GptConfig& model);  // to a Llama; its sizes stay as they are
};

inline void like_gemma3(models::GptConfig& m) {
  m.layout = models::BlockLayout::kBoth;
  m.activation = nn::ActivationKind::kGeglu;
  m.query_key_norm = nn::QueryKeyNorm::kHead;
  m.norm_plus_one = true;
  m.head_size = 2 * m.width / m.heads;
  m.attention_scale = 0.2f;
  m.attention_cap = 2.0f;
  m.window = 3;
  m.window_layers = "110";
  m.window_theta = 100.0f;
  m.rotary_scaling = {.kind = models::RotaryScaling::Kind::kLinear, .factor = 8.0};
  m.window_scaling = models::RotaryScaling();
  m.embedding_scale = 12.0f;
  m.logit_cap = 3.0f;
  m.logits = DType::kBF16;
}

inline void like_olmo2(models::GptConfig& m) {
  m.layout = models::BlockLayout::kAfter;
  m.query_key_norm = nn::QueryKeyNorm::kWidth;
  m.embedding_scale = 40.0f;  // small streams make norms so steep that rounding grows
  m.attention_scale = 0.03f;  // weights of norms that a test makes larger would saturate scores
}

inline void like_neox(models::GptConfig& m) {
  m.layout = models::BlockLayout::kParallel;
  m.norm = nn::NormKind::kLayer;
  m.activation = nn::ActivationKind::kGeluErf;
  m.biases = nn::Biases::all(true);
  m.rotary_share = 0.5f;
}

inline void like_cohere2(models::GptConfig& m) {
  m.layout = models::BlockLayout::kParallelOneNorm;
  m.norm = nn::NormKind::kLayer;
  m.rotary_adjacent = true;
  m.window = 5;
  m.window_layers = m.rotary_layers = "1110";
  m.logit_scale = 0.25f;
}

inline void like_granite(models::GptConfig& m) {
  m.biases = {.qkv = true, .output = false, .mlp = false, .norm = false};
  m.embedding_scale = 12.0f;
  m.residual_scale = 0.22f;
  m.attention_scale = 0.3f;
  m.logit_scale = 0.5f;
}

inline constexpr DecoderChoices kDecoderChoices[] = {{"gemma3", like_gemma3},
                                                     {"olmo2", like_olmo2},
                                                     {"neox", like_neox},
                                                     {"cohere2", like_cohere2},
                                                     {"granite", like_granite}};

}  // namespace trireme::testing
