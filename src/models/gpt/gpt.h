// Decoder-only transformers: GPT-2 style (Radford et al. 2019), Llama style (Touvron et al. 2023)
// and mixtures of the two.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/models/family.h"
#include "trireme/nn/layers.h"

#include "models/gpt/rotary_scaling.h"
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
  nn::Biases biases = {};
  float dropout = 0.0f;  // after the embedding and in each residual branch
  float rotary_theta = 10000.0f;
  float norm_epsilon = 1e-5f;

  // Choices of published models. The defaults are GPT-2's and Llama's.
  std::int64_t head_size = 0;  // channels of a head; 0: width / heads
  BlockLayout layout = BlockLayout::kBefore;
  bool norm_plus_one = false;  // norms multiply by 1 + weight (Gemma)
  nn::QueryKeyNorm query_key_norm = nn::QueryKeyNorm::kNone;
  float attention_scale = 0.0f;     // of scores; 0: 1 / sqrt(head size)
  float attention_cap = 0.0f;       // scores s become cap * tanh(s / cap); 0: as they are
  std::int64_t window = 0;          // keys that a position reads in layers with a window
  std::string window_layers = "1";  // a digit for each layer, repeated: 1: it has the window
  std::string rotary_layers = "1";  // the same: 1: its queries and keys turn
  float rotary_share = 1.0f;        // part of a head's channels that turns
  bool rotary_adjacent = false;     // Rotation::adjacent
  RotaryScaling rotary_scaling = {};
  // In layers with a window; without: as in the others.
  std::optional<float> window_theta = {};
  std::optional<RotaryScaling> window_scaling = {};
  float embedding_scale = 1.0f;  // multiplies embeddings; rounded to the type they are computed in
  float residual_scale = 1.0f;   // multiplies what a branch adds to the stream
  float logit_scale = 1.0f;      // multiplies logits
  float logit_cap = 0.0f;        // then logits l become cap * tanh(l / cap); 0: as they are
  // The wanted type of the loss's logits, fp32 or bf16 (nn::type_of_logits).
  DType logits = DType::kF32;

  std::int64_t head_channels() const { return head_size > 0 ? head_size : width / heads; }
  bool has_window(std::int64_t layer) const;  // whether layer `layer` has one
  bool turns(std::int64_t layer) const;       // whether its queries and keys turn
};

// The preset of that name: "gpt2-124m", "llama3-8b", ... Throws ConfigError for an unknown name;
// the message lists the known ones.
GptConfig gpt_preset(std::string_view name);
std::vector<std::string_view> gpt_preset_names();

// What the blocks of its layer `layer` have.
TransformerSizes transformer_sizes(const GptConfig& config, std::int64_t layer = 0);

// The usual feed-forward width: 4 C for GELU; 8/3 C, rounded up to a multiple of 64, for SwiGLU.
std::int64_t default_hidden(nn::ActivationKind activation, std::int64_t width);

// Throws ConfigError if the numbers do not fit together.
void check(const GptConfig& config);

// The blocks are the embedding, one block per layer, and the head.
nn::ModelPlan gpt_plan(const GptConfig& config);

// The same as the registry gives it.
Model gpt_model(const GptConfig& config);

}  // namespace trireme::models
