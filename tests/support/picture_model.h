// A small model on pictures, with batch norms, and its training on made-up pictures.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/nn/host_micro_batch.h"
#include "trireme/parallel/trainer_step.h"

#include "support/ops_testing.h"

namespace trireme::testing {

inline constexpr std::int64_t kPictureSize = 8, kPictureClasses = 5;
inline constexpr int kPicturesOfMicroBatch = 6;

// Four blocks: a stem; the first half of an inverted residual block (MobileNetV2), which hands two
// tensors on; the rest of it, a residual block (ResNet) and max pooling; and the classes. Every
// tensor rank computes all of it. With `sync` batch norms take their statistics from all replicas.
nn::ModelPlan picture_plan(bool sync = false);

// A micro-batch whose contents are undefined, as dry runs make them.
nn::HostMicroBatch undefined_pictures(ops::Context& ctx, std::int64_t micro, std::int64_t length);
// Micro-batch `number` of a step's data. Pictures and labels depend on the sample alone.
nn::MicroBatch make_pictures(ops::Context& ctx, int number, bool training,
                             int micro = kPicturesOfMicroBatch);

// The pictures of a micro-batch.
Tensor pictures_of(ops::Context& ctx, const nn::MicroBatch& batch, DType dtype);

// Training on a grid: of one rank, where each rank trains by itself, or of all.
class PictureTraining {
 public:
  explicit PictureTraining(const GridShape& shape, const parallel::StepOptions& options = {},
                           const nn::ModelPlan& plan = picture_plan(),
                           ops::Context ctx = ops::make_cpu_context(1));

  // Step `number`, from 0, of so many micro-batches (those of StepOptions::work where it is known)
  // of so many pictures.
  parallel::StepResult train(int number, int micro_batches = 4, int micro = kPicturesOfMicroBatch);
  double evaluate();  // on the micro-batch that no step has

  parallel::TrainerStep& step() { return *step_; }
  parallel::Stage& stage() { return step_->stage(); }
  const parallel::Stage& stage() const { return step_->stage(); }
  ops::Context& ctx() { return ctx_; }
  const ProcessGrid& grid() const { return grid_; }
  // The targets of this rank's micro-batches of the last step that are among the five largest, on a
  // CPU.
  std::int64_t among_five() const { return among_five_; }

  // The states of this rank's stage, by name.
  std::map<std::string, Values> states() const;
  std::map<std::string, std::string> state_bits() const;
  // The bits of the states and of the master weights.
  std::string bits() const;

 private:
  ops::Context ctx_;
  ProcessGrid grid_;
  std::unique_ptr<parallel::TrainerStep> step_;
  std::int64_t among_five_ = 0;
};

}  // namespace trireme::testing
