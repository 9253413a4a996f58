// Short measurements of this machine beside its limits: collectives, operations, a training step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/comm/process_grid.h"
#include "trireme/models/gpt.h"
#include "trireme/ops/context.h"

namespace trireme::bench {

// The middle one; the mean of the two in the middle. At least one value.
double median(std::vector<double> values);

// ---- Collectives -------------------------------------------------------------------------------

// Bus bandwidth over algorithm bandwidth, as nccl-tests defines them: the bytes that cross each
// rank's link over the bytes of the operation, in the best of algorithms. An exchange is a ring:
// each rank sends to the next and receives from the one before.
double bus_factor(Collective op, int ranks);

// "512", "1K", "16M", "2G": bytes, in powers of 1024. Throws ConfigError that names the flag.
std::int64_t read_bytes(const std::string& text, std::string_view flag);
// from, 4 from, 16 from, ... to at most `to`.
std::vector<std::int64_t> sizes_between(std::int64_t from, std::int64_t to);

struct CommRow {
  Collective op = Collective::kAllReduce;
  std::int64_t bytes = 0;  // of the larger of a rank's two buffers, a multiple of the ranks' fp32
  double seconds = 0.0;    // median over the repeats, of the slowest rank
  std::int64_t wrong = 0;  // elements that are not what they must be, on all ranks together

  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }  // bytes/s
};

struct CommOptions {
  std::vector<std::int64_t> sizes;  // bytes
  std::string only;                 // operations whose name holds this; empty: all
  int warmup = 5;
  int repeats = 20;
};
// fp32, summed, on the context's device, in memory as gradients have it. Each row is handed over
// when it is there, on all ranks alike. Collective over comm.
void measure_comm(Communicator& comm, ops::Context& ctx, const CommOptions& options,
                  const std::function<void(const CommRow&)>& report);

// ---- Roofline ----------------------------------------------------------------------------------

// What all ranks together reach at one time (Williams, Waterman and Patterson 2009).
struct Roof {
  // Per second, in the best of square products of the computing type, of growing size until one
  // takes 50 ms or has 8192 rows.
  double flops = 0.0;
  double bandwidth = 0.0;  // bytes/s, in the triad of measure_memory_bandwidth; on GPUs in a copy

  // Seconds that an operation takes at least.
  double floor(double operations, double bytes) const;
};
// Collective over comm. 192 MiB on each rank meanwhile, 768 MiB of a GPU.
Roof measure_roof(Communicator& comm, ops::Context& ctx, DType dtype);

// ---- Operations --------------------------------------------------------------------------------

struct OpRow {
  std::string op, shape;
  double seconds = 0.0;  // median over the repeats
  double flops = 0.0;    // of matrix products; 0 where arithmetic does not count
  double bytes = 0.0;    // read and written once
};

struct OpsOptions {
  models::GptConfig model;
  std::int64_t batch = 4;  // sequences of model.context positions
  DType dtype = DType::kF32;
  std::string only;  // operations whose name holds this; empty: all
  int repeats = 10;
};
// The operations of a block of the model, of its embedding, its loss and its optimizer.
void measure_ops(ops::Context& ctx, const OpsOptions& options,
                 const std::function<void(const OpRow&)>& report);

// ---- Training step -----------------------------------------------------------------------------

struct StepBenchOptions {
  models::GptConfig model;
  std::int64_t batch = 4;  // sequences of a step, of model.context positions
  std::int64_t micro = 4;  // of them in a micro-batch; a divisor of batch
  GridShape grid;
  DType dtype = DType::kF32;
  int repeats = 5;
  bool graphs = false;  // as cuda.graphs; phases are still those of steps that are not captured
};

struct StepTimes {
  double step = 0.0;  // seconds, median over the repeats, of the slowest rank
  double tokens_per_second = 0.0;
  double flops = 0.0;  // per second, matrix products alone
  double loss = 0.0;
  std::string graphs;  // what became of StepBenchOptions::graphs

  // Means over repeats and ranks, in seconds a step; their sum is the mean step. Each without the
  // waits for communication that fell into it, which are `communication`. On a GPU they are what
  // its stream does, by events, in as many further steps.
  double forward = 0.0, backward = 0.0, communication = 0.0, optimizer = 0.0, other = 0.0;

  // The most of any rank, bytes.
  std::array<double, kMemoryUses> memory{};  // by MemoryUse
  double memory_at_once = 0.0;
  double resident = 0.0;  // as the system counts, program and libraries included
};
// Trains on made-up tokens, one step beforehand. Collective over the world. Throws ConfigError
// where the model does not fit the grid, or the batch the micro-batches or the replicas.
StepTimes measure_step(Runtime& runtime, ops::Context& ctx, const StepBenchOptions& options);

// ---- The same for programs ---------------------------------------------------------------------

// JSON; seconds, bytes and operations a second, without prefixes.
std::string comm_json(std::span<const CommRow> rows, int ranks);
std::string ops_json(std::span<const OpRow> rows, const Roof& roof, int threads);
std::string step_json(const StepTimes& times, const Roof& roof, const GridShape& grid);

}  // namespace trireme::bench
