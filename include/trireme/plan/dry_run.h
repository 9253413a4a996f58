// Training without computing, sending or allocating: what a rank of any grid will hold, compute and
// send, found by running its whole program on a dry device (ops::make_dry_context, DryRank).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "trireme/comm/dry_rank.h"
#include "trireme/comm/process_grid.h"
#include "trireme/nn/host_micro_batch.h"
#include "trireme/ops/operation_counts.h"
#include "trireme/parallel/meeting.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/plan/nccl_memory.h"

namespace trireme::plan {

// What each rank computes on.
struct DryDevice {
  int threads = 1;              // of a rank on a CPU
  std::int64_t gpu_memory = 0;  // bytes of each rank's GPU; 0: ranks compute on CPUs
  bool nccl = false;            // whether NCCL carries tensors of GPUs (DryRankOptions)
  NcclSetting nccl_setting{};

  bool on_gpus() const { return gpu_memory > 0; }
};

// What the blocks of a rank read of a micro-batch: those of the first stage the model's input,
// those of the last the targets.
struct BatchParts {
  bool inputs = true, targets = true;
};

struct DryRunInput {
  nn::ModelPlan model;
  parallel::StepOptions step;
  GridShape grid;                                     // of an island
  int islands = 1;                                    // equal ones
  std::optional<parallel::MeetingRule> meeting = {};  // nothing: they never meet
  std::int64_t micro = 1;                             // samples of a micro-batch
  // From the data of so many steps statistics are computed anew between steps
  // (TrainerStep::recompute_states). 0: they are not.
  int recomputed_steps = 0;
  // Returns a micro-batch of so many samples of `length` positions, as the host of a rank makes it
  // whose blocks read `parts`. Nobody reads what is in it.
  std::function<nn::HostMicroBatch(ops::Context&, std::int64_t micro, std::int64_t length,
                                   const BatchParts& parts)>
      make_batch = {};
  // How many micro-batches the host holds ahead of their use, where a step has so many on a rank.
  // They count where ranks compute on CPUs.
  std::function<int(int micro_batches)> read_ahead = {};
  DryDevice device{};
  // Whether our algorithms keep the order of sums (DryRankOptions). Where it is not fixed, as with
  // NCCL, copies of parameters take a broadcast more.
  bool keeps_order = true;
  bool trains = true;  // false: ranks evaluate, so they hold no gradients or optimizer
  // If ranks do not train, whether they predict: they compute the model's outputs, a micro-batch
  // at a time, without targets.
  bool predicts = false;
  bool records = false;  // the second step as a program (DryRunResult)
};

struct DryRunResult {
  int place = 0;          // in the grid (GridShape)
  int ranks = 1;          // of the grid that are like this one
  int micro_batches = 0;  // of a step, here
  // What the context's allocator says after two steps, and after what comes between steps: a
  // meeting, and with DryRunInput::recomputed_steps statistics.
  MemoryStats memory;
  NcclMemory nccl = {};  // with DryDevice::nccl
  // What the second step sends and computes.
  std::vector<DryTraffic> traffic;
  ops::OperationCounts operations;
  // The same in order, with DryRunInput::records, and the communicators that it names. A step of
  // many micro-batches is not recorded whole (recorded_micro_batches).
  StepProgram program = {};
  std::map<int, DryLane> lanes = {};
};

// Builds one rank's part of the model, its optimizer and its training step, and runs two steps.
// MemoryStats::peak_point is a phase of FlightRecorder ("forward", "optimizer"), "start" while the
// model is built, or "meeting" or "optim.recompute_norms" between steps. It runs only some
// micro-batches of a step with many, and counts for the rest what each more adds. Without training
// it evaluates twice, two waves of micro-batches each, or predicts twice. Throws OutOfMemoryError
// where a rank needs more than 8 EiB. Throws ConfigError if the model does not fit the grid.
DryRunResult dry_run(const DryRunInput& input, int place);

// The micro-batches of the programs that stand for a step: all of them, or two numbers, the larger
// one first, and how many more times than the larger a step has what the two differ by.
struct RecordedMicroBatches {
  std::vector<int> counts;
  int periods = 0;
};
RecordedMicroBatches recorded_micro_batches(const DryRunInput& input);

// Records the step of the first tensor rank of every stage, of the first replica that has the most
// micro-batches: so many of them, which is one of those counts. The program is that of any step but
// a first one.
std::vector<DryRunResult> record_stages(const DryRunInput& input, int micro_batches);

// Runs one rank of each kind. Ranks differ in their stage, in their replica's number of
// micro-batches, and in their share of what the tensor ranks split. Tensor ranks between the first
// and the last are like the first. The result is in the order of stages and, within a stage, with
// the most micro-batches first; their `ranks` add up to those of the grid. Throws ConfigError where
// that would take minutes (for thousands of stages, or millions of slices of the loss), and where a
// rank needs more than 8 EiB.
std::vector<DryRunResult> dry_run_all(const DryRunInput& input);

// Runs only those kinds of ranks that may need the most memory, or send the most. They have the
// most micro-batches. The first of several stages with equal blocks between the first and the last
// stands for all of them, because it keeps the most micro-batches. So it takes about as long for
// hundreds of stages as for a few.
std::vector<DryRunResult> dry_run_largest(const DryRunInput& input);

// Returns the most bytes that a rank of the same kinds holds of gradients in a training step: those
// that stay, proposed states (nn::State), and those of the blocks that compute and are reduced. It
// builds their parts of the model and makes their reductions, and computes nothing. It is the same
// whatever the ranks compute on. Throws ConfigError where a rank needs more than 8 EiB, and where
// the model does not fit the grid.
std::size_t most_gradients(const DryRunInput& input);

}  // namespace trireme::plan
