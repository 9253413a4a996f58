// Turns a training step on a GPU into a CUDA graph.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/block.h"
#include "trireme/tensor/captured_work.h"

namespace trireme::parallel {

// The first step runs as it is; the second one is captured and, like all that follow, replayed. A
// step of which a trace is taken runs as it is too, for in a graph the recorder sees no phases.
// What changes from step to step is not in the graph: StepState and micro-batches are written
// before it, to the same place each time, and results are read behind it.
class StepCapture {
 public:
  // Not `wanted`: every step runs as it is.
  StepCapture(ops::Context& ctx, const ProcessGrid& grid, bool wanted);

  using Batches = std::span<const nn::MicroBatch>;
  // Queues `work`, which computes one step. `mine` are of the same shapes in all steps, `step`
  // grows. Returns the micro-batches that were computed, whose losses are the step's. Collective
  // over the grid. Where one rank can capture the step and another cannot, throws CudaError.
  Batches run(Batches mine, std::int64_t step, const std::function<void(Batches)>& work);

  // What there is to say about the last run, for the user; empty: nothing. The same on all ranks.
  std::string take_news() { return std::exchange(news_, {}); }

 private:
  enum class Stage { kPlain, kFirst, kSecond, kReplaying };

  void hold_place_for(Batches mine);
  void bring(Batches mine);
  // False: it cannot be done, on any rank. Nothing has run.
  bool capture(std::int64_t step, const std::function<void(Batches)>& work);
  // Why some rank failed; empty: all are well. The same on all ranks.
  std::string agree(const std::optional<std::string>& own_fault) const;

  ops::Context& ctx_;
  const ProcessGrid& grid_;
  Stage stage_ = Stage::kPlain;
  std::string news_;
  std::vector<nn::MicroBatch> batches_;  // where the graph reads and writes
  std::unique_ptr<CapturedCommunication> communication_;
  std::optional<cuda::CapturedWork> graph_;
};

}  // namespace trireme::parallel
