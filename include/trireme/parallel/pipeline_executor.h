// Runs pipeline schedules. Only this class knows how micro-batches move through the stages.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "trireme/parallel/gradient_reducer.h"
#include "trireme/parallel/schedule.h"
#include "trireme/parallel/stage.h"

namespace trireme::parallel {

// What the backward computes again: nothing; the outputs of norms and activations; or the whole
// forward of a run, of which only the input is kept (see nn::BlockRun::Keep).
enum class Recompute { kNone, kSelective, kFull };

// How an executor runs a stage's blocks in training. The bits of results do not depend on it.
struct RunOptions {
  int blocks = 1;  // in one run; the last run of a chunk may have fewer
  Recompute recompute = Recompute::kNone;
  // How many blocks of each stage are computed again (ends_of_recomputed). Those behind them are
  // runs of one block and keep all. Empty: all blocks are.
  std::optional<int> recomputed_blocks = {};

  // How many neighbouring blocks the backward computes again at once; 0: none.
  int recomputed() const { return recompute == Recompute::kFull ? blocks : 0; }
};

class PipelineExecutor {
 public:
  PipelineExecutor(ops::Context& ctx, const Stage& stage, const RunOptions& runs = {})
      : ctx_(ctx), stage_(stage), runs_(runs) {}

  // Collective over the pipeline. Runs forward and backward of every micro-batch in the order of
  // `schedule`, which must be made for the stage's layout and this number of micro-batches.
  // Gradients add up in the parameters, losses in each micro-batch's loss_sum on the last stage, in
  // its backward.
  void train(const PipelineSchedule& schedule, std::span<const nn::MicroBatch> batches,
             nn::GradientListener& listener);

  // Collective over the pipeline. Runs the forward alone. On the last stage it returns what the
  // last block returned for each micro-batch; on other stages the result has no meaning.
  std::vector<Tensors> forward(std::span<const nn::MicroBatch> batches);

  ops::Context& context() const { return ctx_; }
  const Stage& stage() const { return stage_; }

 private:
  ops::Context& ctx_;
  const Stage& stage_;
  RunOptions runs_;
  std::map<int, std::vector<PipelineStep>> forward_steps_;  // by number of micro-batches
};

}  // namespace trireme::parallel
