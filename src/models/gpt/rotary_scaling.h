// How the rotary frequencies of published models differ from Llama's first ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::models {

// The fields have the names, meanings and defaults of `rope_scaling` in transformers
// (modeling_rope_utils.py). A kind reads its own alone.
struct RotaryScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn, kLongRope };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn, as the next three
  double mscale = 0.0, mscale_all_dim = 0.0;             // 0: not given
  bool truncate = true;
  std::optional<double> attention_factor = {};              // yarn and longrope
  std::vector<double> short_factor = {}, long_factor = {};  // longrope
  double llama_4_scaling_beta = 0.0;                        // Rotation::query_growth; any kind

  bool operator==(const RotaryScaling&) const = default;
};

// "none", or the kind and its fields: "llama3 factor=8 low_freq_factor=1 high_freq_factor=4
// original_max_position_embeddings=8192". Numbers of a list are separated by commas. Throws
// ConfigError for unknown kinds and fields, and for values that a field cannot have.
RotaryScaling read_rotary_scaling(std::string_view text);
std::string text_of(const RotaryScaling& scaling);

// The rotation of `channels` (even) channels of a head, of a model for `context` positions.
nn::Rotations scaled_rotations(const RotaryScaling& scaling, double theta, std::int64_t channels,
                               std::int64_t context, bool adjacent);

}  // namespace trireme::models
