// One optimizer step over the whole grid: the part of training that is neither data nor
// bookkeeping.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "trireme/optim/optimizer.h"
#include "trireme/parallel/pipeline_executor.h"
#include "trireme/parallel/step_numbers.h"

namespace trireme::parallel {

struct StepOptions {
  StageOptions stage;
  optim::OptimizerConfig optimizer;
  float clip = 0.0f;              // largest global gradient norm; 0: no clipping
  std::string schedule = "1f1b";  // of the pipeline: as grid.schedule
  ops::LossScaling loss_scaling = ops::LossScaling::fixed(1.0f);
  // On a GPU: steps become a CUDA graph, for which their micro-batches must be of the same shapes.
  bool cuda_graphs = false;
};

// Equal on every rank.
struct StepResult {
  double loss = 0.0;           // mean over the targets of the global batch
  double gradient_norm = 0.0;  // before clipping
  std::int64_t targets = 0;
  bool finite = true;       // false: the step changed nothing but, perhaps, the loss scale
  double loss_scale = 1.0;  // for the next step
  bool stop = false;        // some rank wants to stop after this step
};

struct EvaluationResult {
  double loss_sum = 0.0;
  std::int64_t targets = 0;
};

// Micro-batches of a step, dealt to the data replicas as evenly as possible: replica d has
// [first, first + count).
struct MicroBatchShare {
  int first = 0;
  int count = 0;
};
MicroBatchShare share_of(int micro_batches, int replicas, int replica);

// Forward alone over this replica's `count` micro-batches, which may be none; `make` makes the
// i-th. Equal on every rank. Collective over the grid.
EvaluationResult evaluate(ops::Context& ctx, const Stage& stage, int count,
                          const std::function<nn::MicroBatch(int i)>& make);

// A step that was queued. On a GPU it is still to be computed; on a CPU it is done.
class QueuedStep {
 public:
  std::int64_t targets() const { return targets_; }  // of the global batch
  bool stop() const { return stop_; }                // some rank wants to stop after this step
  // What became of cuda_graphs, for the user, in the step where it did; empty: nothing.
  const std::string& news() const { return news_; }

  // Waits until the step is computed. Collective over the grid: all ranks ask for the results of
  // their steps at the same places. `grid`: of the TrainerStep.
  StepResult result(const ProcessGrid& grid) const;

 private:
  friend class TrainerStep;
  std::int64_t targets_ = 0;
  bool stop_ = false;
  bool counts_loss_ = false;  // this rank speaks for its replica
  std::string news_;
  StepNumbers numbers_;
};

class StepCapture;  // src/parallel

class TrainerStep {
 public:
  // Collective over the grid. `ctx` outlives this object; its StepState is as at the beginning of a
  // run from now on.
  TrainerStep(ops::Context& ctx, const ProcessGrid& grid, const nn::ModelPlan& plan,
              const StepOptions& options);
  ~TrainerStep();

  // `mine` is this replica's share, the same on all ranks of the replica; `step` counts from 1.
  // Collective over the grid.
  // `wants_stop` reaches every rank as QueuedStep::stop, at no cost of its own.
  // The host waits for other hosts, never for a GPU. What the GPU is given follows from shapes and
  // addresses alone: step, learning rate, random key and number of targets go through the
  // StepState, which is written first, and a step whose gradients are not finite is skipped on the
  // GPU. So with cuda_graphs the first step is queued as it is, and the later ones replay the
  // second: the same bits.
  QueuedStep queue(std::span<const nn::MicroBatch> mine, std::int64_t step, float learning_rate,
                   std::uint64_t random_key, bool wants_stop = false);

  // queue() and its result.
  StepResult train(std::span<const nn::MicroBatch> mine, std::int64_t step, float learning_rate,
                   std::uint64_t random_key, bool wants_stop = false);

  Stage& stage() { return stage_; }
  const Stage& stage() const { return stage_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }

  // Gradients of the last step's sum of losses times the loss scale, before division by the
  // targets, reduced over all copies: train() without the optimizer. For tests and for reports on
  // gradients.
  StepResult accumulate(std::span<const nn::MicroBatch> mine, bool wants_stop = false);

 private:
  QueuedStep begin(std::span<const nn::MicroBatch> mine, bool wants_stop) const;
  void add_up_gradients(std::span<const nn::MicroBatch> mine);
  void compute(std::span<const nn::MicroBatch> mine);

  ops::Context& ctx_;
  const ProcessGrid& grid_;
  StepOptions options_;
  Stage stage_;
  GradientReducer reducer_;
  PipelineExecutor executor_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor norm_sum_, norm_;  // (1) fp64
  std::unique_ptr<StepCapture> capture_;
};

}  // namespace trireme::parallel
