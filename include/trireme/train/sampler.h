// Which token comes next: a pure function of the model's logits, the options and one random number.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

struct SamplingOptions {
  double temperature = 1.0;  // logits are divided by it; 0: always the likeliest token
  std::int64_t top_k = 0;    // only this many of the likeliest tokens; 0: all
  // Only the likeliest tokens that together reach this probability (Holtzman et al. 2020), computed
  // after temperature and top_k; at least one.
  double top_p = 1.0;
};

// `uniform` in (0, 1]. Of equal logits the lower token is the likelier one. Throws InternalError
// where logits are not finite.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          double uniform);

// Uniform in (0, 1], a function of its arguments: the draw for the `position`-th token of a
// prompt's continuation.
double sampling_uniform(std::uint64_t seed, std::uint64_t prompt, std::uint64_t position);

}  // namespace trireme
