// Numbers that a device computes for the host, copied to the host without making it wait.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "trireme/base/exact_sum.h"
#include "trireme/nn/block.h"
#include "trireme/nn/evaluation_sums.h"
#include "trireme/ops/context.h"

namespace trireme::parallel {

// The sums of micro-batches and the results of the optimizer, in flight to the host. On a CPU they
// are there at once.
class StepNumbers {
 public:
  StepNumbers() = default;

  // Queues the copies on the context's stream. `norm`: (1) fp64, the norm of the gradients;
  // undefined if no optimizer ran.
  StepNumbers(ops::Context& ctx, std::span<const nn::MicroBatch> batches,
              const Tensor& norm = Tensor());

  // Blocks the host until the numbers have arrived. Before that the functions below, except
  // has_optimizer(), return nothing meaningful.
  void wait() const;
  void add_losses_to(ExactSum& sum) const;
  // The counts of all micro-batches together; nothing if none of them counts.
  std::optional<nn::CorrectCounts> correct() const;
  bool has_optimizer() const { return norm_.defined(); }
  double gradient_norm() const;
  const ops::StepState& state() const;  // after the step: with the next step's loss scale

 private:
  void queue_correct(ops::Context& ctx, std::span<const nn::MicroBatch> batches);
  void queue_optimizer(ops::Context& ctx, const Tensor& norm);

  Tensor losses_, norm_;                // fp64, on the host
  Tensor correct_;                      // (counting micro-batches, 2) int64, on the host
  Buffer state_;                        // a StepState, on the host
  std::shared_ptr<cuda::Event> event_;  // none on a CPU
};

}  // namespace trireme::parallel
