// Fills in what is masked in texts, with a trained model: `trireme predict`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/parallel/pipeline_executor.h"
#include "trireme/tasks/masked_texts.h"

namespace trireme {

struct LikelyToken {
  std::int32_t token = 0;
  float probability = 0.0f;
};
// The tokens stand from the likeliest down.
using LikelyTokens = std::vector<LikelyToken>;

// Returns how many of the first texts can be filled at once, so that what ranks tell each other of
// the masks' likely tokens, `top` for each mask, has no more than 16 MiB; at least one. Texts are
// dealt to so many data replicas, and each has as many masks as the one with the most.
std::size_t texts_at_once(std::span<const TextToFill> texts, std::size_t replicas, std::size_t top);

class MaskFiller {
 public:
  // Collective over the grid: connects its GPUs (parallel/connections.h). `stage` must outlive this
  // object. It is of a model of texts of up to `context` tokens of `special.vocabulary`, which
  // computes `micro` of them at a time.
  MaskFiller(ops::Context& ctx, const parallel::Stage& stage, const SpecialTokens& special,
             std::int64_t context, std::int64_t micro);

  // How many texts one call takes at most: a micro-batch for each data replica.
  std::int64_t most() const { return micro_ * stage_.grid().extent(kDataAxes); }
  // How many of the first of these texts one call takes: see texts_at_once.
  std::size_t most_of(std::span<const TextToFill> texts, int top) const;

  // Collective over the grid. `texts` are 1 to most() texts of no more than the context, the same
  // on every rank, and most_of() allows them. Returns the `top` likeliest tokens for each mask of
  // each text (all tokens where there are fewer), one after the other, the same on every rank.
  // Throws CheckpointError where probabilities are not finite.
  std::vector<LikelyTokens> fill(std::span<const TextToFill> texts, int top);

 private:
  nn::MicroBatch micro_batch(std::span<const TextToFill> texts, const MaskedSize& size,
                             std::size_t micro) const;
  std::size_t tokens_told(int top) const;

  ops::Context& ctx_;
  const parallel::Stage& stage_;
  SpecialTokens special_;
  std::int64_t context_, micro_;
  parallel::PipelineExecutor executor_;
};

}  // namespace trireme
