// What is recorded of a training step and of an evaluation: the lines of metrics.jsonl.
#pragma once

#include <cstdint>
#include <optional>

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
  double memory_bytes = 0.0;              // peak resident
  bool skipped = false;                   // non-finite gradients: the step changed nothing
  std::optional<double> loss_scale = {};  // fp16: for the next step
};

struct Evaluation {
  std::int64_t step = 0;
  double loss = 0.0;
};

}  // namespace trireme
