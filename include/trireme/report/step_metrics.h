// What is recorded of a training step and of an evaluation: the lines of metrics.jsonl.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "trireme/tensor/allocator.h"

namespace trireme {

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0.0;
  double learning_rate = 0.0;
  double gradient_norm = 0.0;
  std::int64_t tokens = 0;  // since the start of training
  double tokens_per_second = 0.0;
  double step_seconds = 0.0;  // this and the next three: the most of all ranks
  double wait_data_seconds = 0.0;
  double exposed_comm_seconds = 0.0;
  double memory_bytes = 0.0;  // peak resident
  // High-water marks of the device's memory (on CPUs: of what tensors take of the host's), the most
  // of all ranks: all of it at one time, 0 on CPUs; and each MemoryUse.
  double device_memory_bytes = 0.0;
  std::array<double, kMemoryUses> memory_peak{};
  bool skipped = false;                   // non-finite gradients: the step changed nothing
  std::optional<double> loss_scale = {};  // fp16: for the next step

  // Of what a run is short of first: of a GPU, or of the host.
  double needed_memory() const {
    return device_memory_bytes > 0.0 ? device_memory_bytes : memory_bytes;
  }
};

struct Evaluation {
  std::int64_t step = 0;
  double loss = 0.0;
};

}  // namespace trireme
