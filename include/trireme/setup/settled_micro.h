// batch.micro where it is auto: the number that it comes to.
#pragma once

#include <optional>
#include <string>

#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/setup/compute_device.h"
#include "trireme/setup/memory_check.h"

namespace trireme {

// What a run has computed with before this start.
struct MicroBefore {
  int samples = 0;
  GridShape grid;
};

// A run whose keys leave batch.micro open (micro_of_keys).
struct OpenMicro {
  const Config& config;
  const models::Model& model;
  GridShape grid;            // of resolve_run_grid
  plan::DryDevice device{};  // what dry runs compute on
  bool on_gpus = false;      // what ranks compute on; of a GPU perhaps nothing else is known
  std::optional<MicroBefore> before = {};
};

struct SettledMicro {
  int samples = 0;
  std::string why;  // "batch.micro auto: 16: all that a replica computes in a step"
};

// Returns the number, of those with which the run can start (possible_micro, and what the model
// demands). Where a run goes on, on a grid of the same dimensions, it is the one before. Otherwise
// it is the largest
// - that is not above the one before, or at first not beyond what was measured to help;
// - of which each replica has 4 micro-batches for each stage of a pipeline, which would idle else,
//   and 4 where replicas do not divide batch.global, so that the busiest does little more, or where
//   batch.balance deals them by speed;
// - whose dry run takes at most 80 % of the memory. `fits` tells of all of it.
// Where none is, it is the smallest: the check of memory tells whether that can run. The number
// does not depend on how many replicas share a copy where shard.group is auto: it is settled for
// the grid in which all do. A larger group moves more bytes for each micro-batch, and shard.group
// is then chosen for these micro-batches.
SettledMicro settled_micro(const OpenMicro& run, const FitsMemory& fits);

// What is known, where no ranks run yet, of what they will compute on. Memory that is not known
// limits nothing.
struct RanksAhead {
  bool on_gpus = false;
  std::int64_t gpu_bytes = 0;                 // of a GPU's memory; 0: not known
  std::optional<std::int64_t> node_mib = {};  // of a node's memory; empty: not known
  int ranks_of_node = 1;
  int threads = 1;  // of a rank, where the configuration leaves run.threads out
};
// The same for such ranks, as their start will settle it.
SettledMicro settled_micro_ahead(const Config& config, const models::Model& model,
                                 const GridShape& grid, const RanksAhead& ranks);

// Collective over the world. Settles batch.micro of `config` on these ranks, if it is open, where
// rank 0 makes the dry runs. Returns why it is what it is, and nothing where it was not open.
std::string settle_micro_here(Runtime& runtime, const ComputeDevice& device,
                              const models::Model& model, const GridShape& grid,
                              const std::optional<MicroBefore>& before, Config& config);

}  // namespace trireme
