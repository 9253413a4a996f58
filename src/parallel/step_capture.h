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

// The first step is queued as it is. The second one is captured, and it and all later ones are
// replayed. A step that is traced is queued as it is too, because the recorder sees no phases in a
// graph. What changes from step to step is not in the graph: StepState and micro-batches are
// written before it, to the same place each time, and results are read after it.
class StepCapture {
 public:
  // If not `wanted`, every step is queued as it is.
  StepCapture(ops::Context& ctx, const ProcessGrid& grid, bool wanted);

  using Batches = std::span<const nn::MicroBatch>;
  // Collective over the grid. Queues `work`, which computes one step. `mine` must have the same
  // shapes in all steps, and `step` must grow. Returns the micro-batches that were computed; their
  // loss sums are those of the step. Throws CudaError if some ranks can capture the step and others
  // cannot.
  Batches run(Batches mine, std::int64_t step, const std::function<void(Batches)>& work);

  // A line for the user about the last run(); empty: nothing to say. The same on all ranks.
  std::string take_news() { return std::exchange(news_, {}); }

 private:
  enum class Stage { kPlain, kFirst, kSecond, kReplaying };

  void hold_place_for(Batches mine);
  void bring(Batches mine);
  // Returns false if no rank can capture the step. Nothing has run then.
  bool capture(std::int64_t step, const std::function<void(Batches)>& work);
  // The reason why a rank failed; empty if none did. The same on all ranks.
  std::string agree(const std::optional<std::string>& own_fault) const;

  ops::Context& ctx_;
  const ProcessGrid& grid_;
  Stage stage_ = Stage::kPlain;
  std::string news_;
  std::vector<nn::MicroBatch> batches_;  // the memory that the graph reads and writes
  std::unique_ptr<CapturedCommunication> communication_;
  std::optional<cuda::CapturedWork> graph_;
};

}  // namespace trireme::parallel
