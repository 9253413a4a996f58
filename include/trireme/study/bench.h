// Short measurements of this machine, next to its limits: collectives, operations, a training step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/comm/communicator_plan.h"
#include "trireme/comm/grid_shape.h"
#include "trireme/comm/native_collectives.h"
#include "trireme/comm/runtime.h"
#include "trireme/models/family.h"
#include "trireme/ops/context.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/study/step_parts.h"
#include "trireme/tasks/unit.h"

namespace trireme::bench {

// Returns the median; the mean of the two middle values for an even number. Takes at least one
// value.
double median(std::vector<double> values);

// ---- Collectives -------------------------------------------------------------------------------

// Parses "512", "1K", "16M" or "2G" (powers of 1024) and returns bytes. Throws ConfigError that
// names the flag.
std::int64_t read_bytes(const std::string& text, std::string_view flag);
// Returns from, factor * from, factor^2 * from, ... up to at most `to`.
std::vector<std::int64_t> sizes_between(std::int64_t from, std::int64_t to, int factor = 4);

// Who carries the measured collectives.
struct CommCarrier {
  std::string name;                      // "table", "any", an algorithm's name, name_of(NativeCall)
  std::optional<Algorithm> forced = {};  // instead of what the table chooses
  std::optional<NativeCall> native = {};  // MPI's own calls instead of ours
  bool any_order = false;                 // the table of comm.order any
};
// Parses "table", "all" or a list such as "table,any,halving". "all" is the choice of both tables
// and every algorithm, MPI's own as it chooses itself. Throws ConfigError that lists the names.
std::vector<CommCarrier> read_carriers(const std::string& list);

struct CommRow {
  Collective op = Collective::kAllReduce;
  std::string carrier;
  std::int64_t bytes = 0;  // of a rank's larger buffer; a multiple of 4 bytes x ranks
  double seconds = 0.0;    // median over the repeats, of the slowest rank
  std::int64_t wrong = 0;  // elements with a wrong result, on all ranks together
  int repeats = 0;
  std::optional<Algorithm> algorithm = {};  // that carried it, if it was one of ours
  double predicted = 0.0;                   // seconds; 0: not known. measure_comm leaves it so

  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }  // bytes/s
};

struct CommOptions {
  std::vector<std::int64_t> sizes;  // bytes
  std::string only;  // operations whose name contains one of this list, as in "reduce,gather";
                     // empty: all
  int warmup = 5;
  int repeats = 20;
  // Limits the time of the repeats of one size, all carriers together and without pauses, but each
  // carrier has `fewest` of them. A run of more than 0.2 s counts even if it is the first one.
  double seconds = std::numeric_limits<double>::infinity();
  int fewest = 3;
  // A carrier whose median is more than this times the least of all is not repeated. Of runs below
  // 0.2 s that takes at least three, below 20 ms at least ten, which take at least 5 ms together.
  double drop = std::numeric_limits<double>::infinity();
  // Seconds without messages before each run, so that a network which lets a burst pass after a
  // pause does so for all alike.
  double pause = 0.0;
  std::vector<CommCarrier> carriers = {{"table"}};
  // What makes the tables of algorithms for the carrier "any" and for all others; empty: the
  // default tables.
  CommunicatorPlanner any_planner = {}, planner = {};
  // Whether to measure a carrier that knows the collective; must answer alike on all ranks. Empty:
  // all.
  std::function<bool(Collective op, std::int64_t bytes, const CommCarrier& carrier)> wanted = {};
};
// Collective over the world. Measures the collectives with fp32 elements and sums, on the context's
// device, in the kind of memory that gradients have. The carriers take turns, so that a machine
// that drifts does so for all alike. A carrier is left out where it does not know the collective.
// New communicators of the runtime have `options.planner` afterwards.
// Forced algorithms and MPI's own calls carry tensors of the host alone. Calls `report` with each
// row as soon as it is measured, on all ranks.
void measure_comm(Runtime& runtime, ops::Context& ctx, const CommOptions& options,
                  const std::function<void(const CommRow&)>& report);

// ---- Roofline ----------------------------------------------------------------------------------

// The limits that all ranks reach together, at the same time (Williams, Waterman and Patterson
// 2009).
struct Roof {
  // Operations/s: the best of square matrix products in the compute type, of growing size until one
  // takes 50 ms or has 8192 rows.
  double flops = 0.0;
  double bandwidth = 0.0;  // bytes/s by measure_memory_bandwidth: a triad, on GPUs a copy
  // On GPUs, operations/s of the largest of these products over a second without a pause: the
  // clocks fall under load. 0: not measured.
  double sustained = 0.0;

  // Returns the least time that an operation can take, in seconds.
  double floor(double operations, double bytes) const;
  // What one of so many equal ranks has of them.
  Roof of_one(int ranks) const { return {flops / ranks, bandwidth / ranks, sustained / ranks}; }
};
// Collective over comm. Uses 192 MiB on each rank meanwhile, or 768 MiB of a GPU.
Roof measure_roof(Communicator& comm, ops::Context& ctx, DType dtype);

// ---- Operations --------------------------------------------------------------------------------

struct OpRow {
  std::string op, shape;
  double seconds = 0.0;  // median over the repeats
  double flops = 0.0;    // of matrix products; 0 for all other operations
  double bytes = 0.0;    // with each operand read or written once
};

struct OpsOptions {
  models::Model model;
  std::int64_t batch = 4;  // samples
  DType dtype = DType::kF32;
  std::string only;       // operations whose name contains this; empty: all
  bool products = false;  // only products of matrices
  bool cold = false;      // on a GPU, each time after its cache has lost the operands
  bool graphs = false;    // on a GPU, many times in a CUDA graph, so that launches cost nothing
  int repeats = 10;
};
// Measures the operations that the model lists: those of one block of each kind.
// Calls `report` with each row as soon as it is measured.
void measure_ops(ops::Context& ctx, const OpsOptions& options,
                 const std::function<void(const OpRow&)>& report);

// ---- Training step -----------------------------------------------------------------------------

struct StepBenchOptions {
  models::Model model;
  std::int64_t batch = 4;  // samples per step
  std::int64_t micro = 4;  // samples per micro-batch; a divisor of batch
  GridShape grid;
  std::vector<int> ranks = {};  // of the grid, in the order of places; empty: all of the world
  parallel::StepOptions step;   // phases are measured in steps without a graph
  int repeats = 5;
  std::function<void()> warm = {};  // is called after the warm-up, before what counts
  bool parts = false;               // whether to take the step apart
};

struct StepTimes {
  double step = 0.0;      // seconds, median over the repeats, of the slowest rank
  tasks::Unit unit = {};  // of progress
  double units_per_second = 0.0;
  double flops = 0.0;  // per second, matrix products only
  double loss = 0.0;
  std::string graphs;  // whether the step was captured, or why not; empty without graphs

  // Means over repeats and ranks, in seconds per step. Their sum is the mean step. Waits for
  // communication during a phase count as `communication`, not in that phase. On a GPU these are
  // times of its stream, measured by events in as many further steps.
  double forward = 0.0, backward = 0.0, communication = 0.0, optimizer = 0.0, other = 0.0;

  // Maxima over all ranks, in bytes.
  std::array<double, kMemoryUses> memory{};  // by MemoryUse
  double memory_at_once = 0.0;
  double resident = 0.0;  // resident memory, program and libraries included

  // With StepBenchOptions::parts: this rank's part of further steps without a graph.
  std::optional<StepParts> operations = {};
  KernelParts kernels = {};                // on a GPU
  std::optional<GpuState> gpu_state = {};  // on a GPU
};
// Collective over the world. Trains on made-up samples, after one warm-up step (two with graphs).
// Throws ConfigError where the model does not fit the grid.
StepTimes measure_step(Runtime& runtime, ops::Context& ctx, const StepBenchOptions& options);

// ---- The same for programs ---------------------------------------------------------------------

// JSON, in seconds, bytes/s and operations/s, without unit prefixes.
std::string comm_json(std::span<const CommRow> rows, int ranks);
std::string ops_json(std::span<const OpRow> rows, const Roof& roof, int threads);
std::string step_json(const StepTimes& times, const Roof& roof, const GridShape& grid);

}  // namespace trireme::bench
