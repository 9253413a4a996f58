// What a run trains with, from the device to the run folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/io/run_folder.h"
#include "trireme/models/family.h"
#include "trireme/ops/attention.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/report/fabric_record.h"
#include "trireme/tasks/task.h"
#include "trireme/topology/rank_order.h"
#include "trireme/train/communication.h"
#include "trireme/train/compute_device.h"

#include "train/algorithm_tuner.h"
#include "train/grid_placement.h"
#include "train/same_bits.h"
#include "train/startup_phases.h"

namespace trireme {

// The parts are made in the order in which they stand here, each from those before it.
struct PreparedRun {
  // Collective over the world. Makes all parts, and leaves no folder behind if one of them cannot
  // be made. `chosen`: the device that the caller has already chosen according to `wanted`. Throws
  // the Errors of the parts.
  PreparedRun(Runtime& ranks, const Config& wanted, std::optional<ComputeDevice> chosen);
  PreparedRun(const PreparedRun&) = delete;
  PreparedRun& operator=(const PreparedRun&) = delete;

  bool leads() const { return runtime.rank() == 0; }

  // The bytes of a checkpoint: weights and what the optimizer keeps of each, in fp32.
  std::int64_t checkpoint_bytes() const;

  StartupPhases phases;
  Runtime& runtime;
  Config config;  // with all values that follow from the ranks, the data and the model
  const tasks::Task& task;
  Shape sample;  // of the task
  BitsOfStart bits;
  ComputeDevice device;
  NetworkOfJob network;  // for which the communicators are planned
  GridShape shape;
  std::shared_ptr<const tasks::TaskData> train_data;
  models::Model model;
  GridTraffic traffic;                                     // of a step; on the leading rank
  std::shared_ptr<const tasks::TaskData> validation_data;  // null: there are none
  Placement placement;
  std::optional<FabricRecord> fabric;  // on the leading rank, where a network is known
  ProcessGrid grid;
  std::optional<AlgorithmTuner> tuner;  // with comm.tune, on ranks that talk over MPI
  parallel::TrainerStep step;
  ops::AttentionChoice attention;
  RunFolder folder;

 private:
  NetworkOfJob plan_network();
  std::shared_ptr<const tasks::TaskData> open_training_data();
  GridTraffic choose_shards();
  std::shared_ptr<const tasks::TaskData> open_validation_data();
  Placement place();
  std::optional<AlgorithmTuner> tune_before_steps();
  parallel::StepOptions options_of_step() const;
  ops::AttentionChoice choose_attention();
};

}  // namespace trireme
