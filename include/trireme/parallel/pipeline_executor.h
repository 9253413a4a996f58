// Runs a pipeline schedule: the only place that knows how micro-batches move through the stages.
#pragma once

#include <span>

#include "trireme/parallel/gradient_reducer.h"
#include "trireme/parallel/schedule.h"
#include "trireme/parallel/stage.h"

namespace trireme::parallel {

class PipelineExecutor {
 public:
  PipelineExecutor(ops::Context& ctx, const Stage& stage) : ctx_(ctx), stage_(stage) {}

  // Forward and backward of every micro-batch, in the order of `schedule` (one made for this many
  // stages and micro-batches). Collective over the pipeline. Gradients add up in the parameters;
  // losses in each micro-batch's loss_sum, on the last stage.
  void train(const PipelineSchedule& schedule, std::span<const nn::MicroBatch> batches,
             nn::GradientListener& listener);

  // Forward alone. Returns what the last block returned, by micro-batch; empty on the other stages.
  std::vector<nn::Values> forward(std::span<const nn::MicroBatch> batches);

 private:
  ops::Context& ctx_;
  const Stage& stage_;
};

}  // namespace trireme::parallel
