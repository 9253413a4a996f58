// Decoder-only transformers: GPT-2 style (Radford et al. 2019), Llama style (Touvron et al. 2023)
// and what lies between.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::models {

struct GptConfig {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // equal to heads, or a divisor of it: grouped-query attention
  std::int64_t hidden = 0;    // of the feed-forward part
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
  nn::NormKind norm = nn::NormKind::kLayer;
  nn::ActivationKind activation = nn::ActivationKind::kGelu;
  nn::PositionKind positions = nn::PositionKind::kLearned;
  bool tied = true;
  bool bias = true;
  float dropout = 0.0f;  // of the embedding and of each residual branch
  float rotary_theta = 10000.0f;
};

// "gpt2-124m", "llama3-8b", ...; throws ConfigError that names the nearest for an unknown one.
GptConfig gpt_preset(std::string_view name);
std::vector<std::string_view> gpt_preset_names();

// The usual feed-forward width: 4 C for GELU; 8/3 C, rounded up to a multiple of 64, for SwiGLU.
std::int64_t default_hidden(nn::ActivationKind activation, std::int64_t width);

// Throws ConfigError where the numbers do not fit together.
void check(const GptConfig& config);

// Blocks: embedding, one per layer, head.
nn::ModelPlan gpt_plan(const GptConfig& config);

}  // namespace trireme::models
