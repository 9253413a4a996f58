// Chooses the next token: a pure function of the model's logits, the options and one random number.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

struct SamplingOptions {
  double temperature = 1.0;  // logits are divided by it; 0: always the likeliest token
  std::int64_t top_k = 0;    // only this many of the likeliest tokens; 0: all
  // Only the likeliest tokens that together reach this probability (Holtzman et al. 2020), at least
  // one. Applied after temperature and top_k.
  double top_p = 1.0;
};

// Returns the sampled token. `uniform` is in (0, 1]. Among equal logits the lower token counts as
// the likelier one. Throws InternalError where logits are not finite.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          double uniform);

// Returns a uniform number in (0, 1] that depends only on the arguments: the draw for the
// `position`-th token of a prompt's continuation.
double sampling_uniform(std::uint64_t seed, std::uint64_t prompt, std::uint64_t position);

}  // namespace trireme
