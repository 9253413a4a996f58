// One optimizer step over the whole grid: the part of training without reading data and without
// bookkeeping.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/nn/evaluation_sums.h"
#include "trireme/ops/update.h"
#include "trireme/optim/optimizer.h"
#include "trireme/parallel/pipeline_executor.h"
#include "trireme/parallel/step_numbers.h"

namespace trireme::parallel {

struct StepOptions {
  StageOptions stage;
  optim::OptimizerConfig optimizer;
  DType reduce = DType::kF32;  // in which gradients travel between replicas: fp32 or bf16
  int reduce_bits = 32;        // fewer: they travel so (CompressedSum), and `reduce` is fp32
  // The largest gradients: each element, then the norm of each parameter's, then the norm of all.
  // 0: no limit.
  float clip_value = 0.0f, clip_each = 0.0f, clip = 0.0f;
  // The pipeline's schedule, a name of grid.schedule. Its layout (schedule_layout) is that of
  // `stage`.
  std::string schedule = "1f1b";
  RunOptions runs{};
  // Who computes which micro-batch of every step. Where it is not known, the replicas ask each
  // other in each step how many there are, and their shares are even.
  WorkSplit work{};
  ops::LossScaling loss_scaling = ops::LossScaling::fixed(1.0f);
  // Whether steps on a GPU are captured as a CUDA graph. The micro-batches of all steps must then
  // have the same shapes.
  bool cuda_graphs = false;
};

// Equal on every rank.
struct StepResult {
  // Mean over the targets of the global batch. Without any the step changes nothing, and this is
  // NaN.
  double loss = 0.0;
  double gradient_norm = 0.0;  // before `clip`, after the other two
  std::int64_t targets = 0;
  bool finite = true;       // false: the step was skipped; at most the loss scale changed
  double loss_scale = 1.0;  // for the next step
  bool stop = false;        // a rank wants to stop after this step
};

// Collective over the grid. Runs the forward alone over this replica's `count` micro-batches;
// `count` may be 0. `make` makes the i-th. Returns the sums over all replicas, the same on every
// rank. Either all micro-batches count correct answers (nn::MicroBatch::correct) or none.
nn::EvaluationSums evaluate(PipelineExecutor& executor, int count,
                            const std::function<nn::MicroBatch(int i)>& make);

// A step that was queued. On a GPU it may still be in flight; on a CPU it is done.
class QueuedStep {
 public:
  std::int64_t targets() const { return targets_; }  // of the global batch
  bool stop() const { return stop_; }                // a rank wants to stop after this step
  // A line for the user in the step that settled whether cuda_graphs takes effect; otherwise empty.
  const std::string& news() const { return news_; }

  // Collective over the grid: all ranks must ask for the results of their steps at the same points.
  // Waits until the step is computed. `grid`: the grid of the TrainerStep.
  StepResult result(const ProcessGrid& grid) const;

 private:
  friend class TrainerStep;
  std::int64_t targets_ = 0;      // of the island
  std::int64_t all_targets_ = 0;  // that gradients are divided by: of the islands that are joined
  bool stop_ = false;
  bool computes_ = true;      // false: no sample has a target, and nothing is to be computed
  bool counts_loss_ = false;  // this rank contributes its replica's loss
  std::string news_;
  StepNumbers numbers_;
};

class GradientClip;  // src/parallel
class StateUpdates;  // src/parallel
class StepCapture;   // src/parallel

class TrainerStep {
 public:
  // Collective over the grid. `ctx` must outlive this object. Resets its StepState to the beginning
  // of a run.
  TrainerStep(ops::Context& ctx, const ProcessGrid& grid, const nn::ModelPlan& plan,
              const StepOptions& options);
  ~TrainerStep();

  // Collective over the grid, before the first step. Does all communication of a step once, with
  // micro-batches of batch x length positions and gradients of zero, so that the ranks are
  // connected before activations are allocated (parallel/connections.h). Waits for the GPU. Returns
  // how many bytes of its memory are gone for that. Does nothing on a CPU.
  std::size_t connect(std::int64_t batch, std::int64_t length);

  // Collective over the grid. Queues one step. `mine` is this replica's share
  // (WorkSplit::of), the same on all ranks of the replica; `step` counts from 1. If
  // `wants_stop` is true on any rank, QueuedStep::stop is true on every rank; this costs no extra
  // communication. The host waits for other hosts, never for a GPU. The work queued on a GPU
  // depends on shapes and addresses alone: step, learning rate, random key and number of targets go
  // through the StepState, which is written first, and the GPU itself skips a step whose gradients
  // are not finite. So with cuda_graphs the first step is queued without capture, the second is
  // captured, and it and all later ones replay that graph, with the same bits.
  QueuedStep queue(std::span<const nn::MicroBatch> mine, std::int64_t step, float learning_rate,
                   std::uint64_t random_key, bool wants_stop = false);

  // queue(), then QueuedStep::result().
  StepResult train(std::span<const nn::MicroBatch> mine, std::int64_t step, float learning_rate,
                   std::uint64_t random_key, bool wants_stop = false);

  // Steps from now on are of all islands: `across` (Islands::across) adds up gradients and targets.
  // nullptr: they are of this one alone. No step may be queued or captured.
  void join_islands(Communicator* across) { across_ = across; }
  // Steps from now on have other shares (WorkSplit::of_shares) of as many micro-batches. Call it on
  // all ranks. No step may be queued or captured.
  void share(const WorkSplit& work);
  // Call it once initial values were drawn or read. Averages of the weights and of states for which
  // `of` holds, by name, begin with what they average.
  void begin_averages(const std::function<bool(const std::string& name)>& of);
  // Call it after writing to the groups' values between steps: makes the weights that steps go on
  // from.
  void values_changed();
  // Evaluations between steps then have the averages of the weights, or again what steps go on
  // from, where they differ (OptimizerConfig::weights_apart). No step may be queued. The addresses
  // of all tensors stay.
  void use_averages(bool averaged);
  bool averages() const { return options_.optimizer.average.has_value(); }

  // Whether gradients travel in few bits between several replicas. What these lose goes with the
  // next step's, but for steps that are skipped.
  bool compresses() const { return reducer_.compresses(); }
  // Collective over the grid. Leaves in the gradients (of a sharded group, in its shard) what
  // gradients of the sum of losses still lack, over all replicas.
  void gather_kept();
  // Collective over the grid. Takes that from there: each replica goes on with an equal part.
  // Gradients are undefined afterwards. The loss scale must be known.
  void take_kept();

  // Collective over the grid. Sets the states to the means of what the micro-batches of `steps`
  // steps propose, with the weights as they are; `next` returns this replica's of a step. Gradients
  // are undefined afterwards, all else stays. No step may be queued.
  void recompute_states(int steps, const std::function<std::vector<nn::MicroBatch>()>& next);

  const StepOptions& options() const { return options_; }
  Stage& stage() { return stage_; }
  const Stage& stage() const { return stage_; }
  PipelineExecutor& executor() { return executor_; }  // for evaluation between steps
  const optim::Optimizer& optimizer() const { return *optimizer_; }

  // Collective over the grid. train() without the optimizer: leaves the gradients of the sum of
  // losses times the loss scale in the parameters (of a sharded group, in its shard), reduced over
  // all copies, not divided by the number of targets. For tests and for reports on gradients.
  StepResult accumulate(std::span<const nn::MicroBatch> mine, bool wants_stop = false);

 private:
  QueuedStep begin(std::span<const nn::MicroBatch> mine, bool wants_stop);
  void add_up_gradients(std::span<const nn::MicroBatch> mine, bool keeps);
  void scale_gradients(float factor);
  void add_up_islands();
  void compute(std::span<const nn::MicroBatch> mine);
  // Tells this replica's micro-batches which of the step's they are, if the stage has states.
  void number(std::span<nn::MicroBatch> mine) const;

  ops::Context& ctx_;
  const ProcessGrid& grid_;
  StepOptions options_;
  Stage stage_;
  GradientReducer reducer_;
  std::unique_ptr<StateUpdates> states_;
  PipelineExecutor executor_;
  std::optional<PipelineSchedule> schedule_;  // made in the first step
  WorkSplit work_;                            // of this step
  int micro_batches_ = 0;                     // that this replica runs, with empty ones
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<GradientClip> clip_;
  Tensor norm_limbs_;       // (kExactLimbs) int64
  Tensor norm_sum_, norm_;  // (1) fp64
  std::unique_ptr<StepCapture> capture_;
  Communicator* across_ = nullptr;  // see join_islands
};

}  // namespace trireme::parallel
