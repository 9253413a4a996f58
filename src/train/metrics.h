// metrics.jsonl: one JSON object a line, for each step and each evaluation (io/README.md).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

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
  bool skipped = false;       // non-finite gradients: the step changed nothing
};

// Written by rank 0 alone.
class MetricsLog {
 public:
  // Cuts the file back to the lines of steps up to `step`, so that a resumed run tells its story
  // once. Throws RunFolderError.
  MetricsLog(const std::string& path, std::int64_t step);

  void write(const StepMetrics& metrics);
  void write_evaluation(std::int64_t step, double loss);

 private:
  void append(const std::string& line);

  std::string path_;
  std::ofstream file_;
};

}  // namespace trireme
