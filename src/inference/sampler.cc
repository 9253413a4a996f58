#include "trireme/inference/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"

namespace trireme {
namespace {

struct Candidate {
  std::int32_t token;
  double weight;  // its logit, then its probability times a constant
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

double total(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const Candidate& c) { return sum + c.weight; });
}

// Keeps the likeliest candidates, as few as reach the share `top_p` of the total.
void keep_nucleus(std::vector<Candidate>& candidates, double top_p) {
  const double enough = top_p * total(candidates);
  double sum = 0.0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    sum += candidates[i].weight;
    if (sum >= enough) return candidates.resize(i + 1);
  }
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          double uniform) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (const float logit : logits) {
    TRIREME_CHECK(std::isfinite(logit),
                  "the model's logits are not finite: its weights are damaged "
                  "or its training diverged");
    candidates.push_back({static_cast<std::int32_t>(candidates.size()), double{logit}});
  }
  const Candidate best = *std::min_element(candidates.begin(), candidates.end(), likelier);
  if (options.temperature == 0.0) return best.token;
  const bool fewer = options.top_k > 0 && options.top_k < std::ssize(candidates);
  if (fewer) {
    std::nth_element(candidates.begin(), candidates.begin() + options.top_k, candidates.end(),
                     likelier);
    candidates.resize(static_cast<std::size_t>(options.top_k));
  }
  // Sorts only if the order matters. If all candidates are kept, the order of tokens is as good.
  if (fewer || options.top_p < 1.0) std::sort(candidates.begin(), candidates.end(), likelier);
  for (Candidate& candidate : candidates) {
    candidate.weight = std::exp((candidate.weight - best.weight) / options.temperature);
  }
  if (options.top_p < 1.0) keep_nucleus(candidates, options.top_p);
  const double target = uniform * total(candidates);
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.weight;
    if (sum >= target) return candidate.token;
  }
  return candidates.back().token;
}

double sampling_uniform(std::uint64_t seed, std::uint64_t prompt, std::uint64_t position) {
  const Philox4 draw =
      philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                  static_cast<std::uint32_t>(prompt), static_cast<std::uint32_t>(prompt >> 32)},
                 philox_key(seed, "sampling"));
  // Uses 53 bits, which is what a double between 1/2 and 1 can resolve.
  const std::uint64_t bits = ((std::uint64_t{draw[1]} << 32) | draw[0]) >> 11;
  return (static_cast<double>(bits) + 1.0) * 0x1p-53;
}

}  // namespace trireme
