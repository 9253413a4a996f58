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
// From the likeliest down.
using LikelyTokens = std::vector<LikelyToken>;

class MaskFiller {
 public:
  // Collective over the grid: connects its GPUs (parallel/connections.h). `stage` must outlive this
  // object. It is of a model of texts of up to `context` tokens of `special.vocabulary`, which
  // computes `micro` of them at a time.
  MaskFiller(ops::Context& ctx, const parallel::Stage& stage, const SpecialTokens& special,
             std::int64_t context, std::int64_t micro);

  // How many texts one call takes: a micro-batch for each data replica.
  std::int64_t most() const { return micro_ * stage_.grid().extent(kDataAxes); }

  // Collective over the grid. `texts` are 1 to most() texts of no more than the context, the same
  // on every rank. Returns the `top` likeliest tokens for each mask of each text, one after the
  // other, the same on every rank. Throws CheckpointError where probabilities are not finite.
  std::vector<LikelyTokens> fill(std::span<const TextToFill> texts, int top);

 private:
  nn::MicroBatch micro_batch(std::span<const TextToFill> texts, const MaskedSize& size,
                             std::size_t micro) const;

  ops::Context& ctx_;
  const parallel::Stage& stage_;
  SpecialTokens special_;
  std::int64_t context_, micro_;
  parallel::PipelineExecutor executor_;
};

}  // namespace trireme
