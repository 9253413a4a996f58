// What is recorded for a training step and for an evaluation: the lines of metrics.jsonl.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/tensor/allocator.h"

namespace trireme {

struct StepMetrics {
  std::int64_t step = 0;
  double time = 0.0;  // when it was recorded, in seconds since 1970; 0: not known
  double loss = 0.0;
  double learning_rate = 0.0;
  double gradient_norm = 0.0;
  std::int64_t units = 0;  // of progress (tasks::Unit), since the start of training
  double units_per_second = 0.0;
  double step_seconds = 0.0;  // this and the next three: maximum over all ranks
  double wait_data_seconds = 0.0;
  double exposed_comm_seconds = 0.0;
  double memory_bytes = 0.0;  // peak resident
  // Peaks of device memory, the maximum over all ranks. device_memory_bytes is the peak of the
  // total, 0 on CPUs. memory_peak is the peak of each MemoryUse; on CPUs, of the tensors in host
  // memory.
  double device_memory_bytes = 0.0;
  std::array<double, kMemoryUses> memory_peak{};
  bool skipped = false;                   // non-finite gradients: the step changed nothing
  bool no_targets = false;                // so there is no loss: the step changed nothing
  std::optional<double> loss_scale = {};  // fp16: the scale for the next step
  std::vector<double> losses_of_islands;  // of several islands; NaN: without targets

  // Peak use of the memory that a run runs short of first: the GPU's if there is one, else the
  // host's.
  double needed_memory() const {
    return device_memory_bytes > 0.0 ? device_memory_bytes : memory_bytes;
  }
};

struct Evaluation {
  std::int64_t step = 0;
  double loss = 0.0;
  double seconds = 0.0;  // how long it took
  // The shares of samples, 0 to 1, whose class was the likeliest, and among the five likeliest.
  // Only a classification has them.
  std::optional<double> top1 = {}, top5 = {};
  bool of_average = false;  // of the weights' average (eval.weights), in place of the weights
  double time = 0.0;        // as in StepMetrics
};

}  // namespace trireme
