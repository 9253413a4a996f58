// Numbers that a device adds up for the host, which gets them when they arrive.
#pragma once

#include <memory>
#include <span>

#include "trireme/nn/block.h"
#include "trireme/ops/context.h"

namespace trireme::parallel {

// The sums of losses of micro-batches, and what the optimizer leaves, on their way to the host. On
// a CPU they are there at once.
class StepNumbers {
 public:
  StepNumbers() = default;

  // Queues the copies behind the work that the context's stream holds. `norm`: (1) fp64, of the
  // gradients; undefined where no optimizer ran.
  StepNumbers(ops::Context& ctx, std::span<const nn::MicroBatch> batches,
              const Tensor& norm = Tensor());

  // Blocks the host until they are there; before that the others say nothing true.
  void wait() const;
  double add_losses_to(double sum) const;  // micro-batch after micro-batch
  bool has_optimizer() const { return norm_.defined(); }
  double gradient_norm() const;
  const ops::StepState& state() const;  // as the step leaves it: the next one's loss scale

 private:
  void queue_optimizer(ops::Context& ctx, const Tensor& norm);

  Tensor losses_, norm_;                // fp64, on the host
  Buffer state_;                        // on the host: a StepState
  std::shared_ptr<cuda::Event> event_;  // none on a CPU
};

}  // namespace trireme::parallel
