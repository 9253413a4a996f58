// Decoder-only transformers: GPT-2 style (Radford et al. 2019), Llama style (Touvron et al. 2023)
// and mixtures of the two.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/models/family.h"
#include "trireme/nn/layers.h"

#include "models/transformer.h"

namespace trireme::models {

struct GptConfig {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // equal to heads, or a divisor: grouped-query attention
  std::int64_t hidden = 0;    // width of the feed-forward layer
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;
  nn::NormKind norm = nn::NormKind::kLayer;
  nn::ActivationKind activation = nn::ActivationKind::kGelu;
  nn::PositionKind positions = nn::PositionKind::kLearned;
  bool tied = true;
  bool bias = true;
  float dropout = 0.0f;  // after the embedding and in each residual branch
  float rotary_theta = 10000.0f;
  float norm_epsilon = 1e-5f;
};

// The preset of that name: "gpt2-124m", "llama3-8b", ... Throws ConfigError for an unknown name;
// the message lists the known ones.
GptConfig gpt_preset(std::string_view name);
std::vector<std::string_view> gpt_preset_names();

// What all of its blocks have.
TransformerSizes transformer_sizes(const GptConfig& config);

// The usual feed-forward width: 4 C for GELU; 8/3 C, rounded up to a multiple of 64, for SwiGLU.
std::int64_t default_hidden(nn::ActivationKind activation, std::int64_t width);

// Throws ConfigError if the numbers do not fit together.
void check(const GptConfig& config);

// The blocks are the embedding, one block per layer, and the head.
nn::ModelPlan gpt_plan(const GptConfig& config);

// The same as the registry gives it.
Model gpt_model(const GptConfig& config);

}  // namespace trireme::models
