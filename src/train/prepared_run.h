// What a run trains with, from the device to the run folder.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/islands.h"
#include "trireme/comm/process_grid.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/io/outer_record.h"
#include "trireme/io/run_folder.h"
#include "trireme/models/family.h"
#include "trireme/ops/attention.h"
#include "trireme/optim/schedule.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/report/fabric_record.h"
#include "trireme/setup/communication.h"
#include "trireme/setup/compute_device.h"
#include "trireme/setup/grid_placement.h"
#include "trireme/tasks/task.h"
#include "trireme/topology/rank_order.h"

#include "train/algorithm_tuner.h"
#include "train/chosen_products.h"
#include "train/same_bits.h"
#include "train/settled_rate.h"
#include "train/startup_phases.h"

namespace trireme {

// What is decided before ranks connect: values, each made from those before it.
struct RunPlan {
  Runtime& runtime;
  StartupPhases phases;
  const tasks::Task& task;
  Shape sample;  // of the task
  BitsOfStart bits;
  std::string why_shares;  // what batch.balance auto begins with; empty: it is not auto
  std::string why_cut;     // likewise, of grid.cut
  std::string why_micro;   // why batch.micro is what it is; empty: the keys say so
  SettledRate settled_rate;
  std::vector<optim::LearningRatePoint> rates;  // of schedule.file; none with other curves
  ComputeDevice device;
  ChosenProducts products;
  NetworkOfJob network;  // for which the communicators are planned
  std::shared_ptr<const tasks::TaskData> train_data;
  models::Model model;
  GridShape shape;                                         // of an island
  std::shared_ptr<const tasks::TaskData> validation_data;  // null: there are none
  Placement placement;
  std::optional<FabricRecord> fabric;  // on the leading rank, where a network is known
  Config config;  // with all values that follow from the ranks, the data and the model

  bool leads() const { return runtime.rank() == 0; }
};

// Collective over the world. `chosen`: the device that the caller has already chosen according to
// `wanted`. Throws the Errors of the parts.
RunPlan plan_run(Runtime& runtime, const Config& wanted, std::optional<ComputeDevice> chosen);

// A plan, and what communicates.
struct PreparedRun : RunPlan {
  // Collective over the world. Leaves no folder behind if one of the parts cannot be made.
  explicit PreparedRun(RunPlan plan);
  PreparedRun(const PreparedRun&) = delete;
  PreparedRun& operator=(const PreparedRun&) = delete;

  // The bytes of a checkpoint: weights and what the optimizer keeps of each, in fp32; of each
  // island, and what they have outside of them.
  std::int64_t checkpoint_bytes() const;
  // The samples of a step of all islands, each of which takes batch.global of them in turn.
  std::int64_t samples_of_step() const {
    return std::int64_t{config.batch.global} * islands.count();
  }
  // Call it on all ranks between steps. Steps from now on have these shares (batch.balance auto).
  void share(const std::vector<int>& shares);
  // This replica's samples of `steps` steps, of which the first begins with `first_sample` of the
  // training data.
  BatchPlan samples_of_steps(std::int64_t first_sample, std::int64_t steps) const;
  // The same of steps whose samples are these, in their order.
  BatchPlan samples_of_steps(const SampleRanges& samples, std::int64_t steps) const;

  Islands islands;
  ProcessGrid grid;                     // of this rank's island
  std::optional<AlgorithmTuner> tuner;  // with comm.tune, on ranks that talk over MPI
  parallel::TrainerStep step;
  ops::AttentionChoice attention;
  RunFolder folder;

 private:
  BatchPlan samples_where(std::function<std::int64_t(std::int64_t)> place,
                          std::int64_t steps) const;
  std::optional<AlgorithmTuner> tune_before_steps();
  parallel::StepOptions options_of_step() const;
  ops::AttentionChoice choose_attention();
};

}  // namespace trireme
