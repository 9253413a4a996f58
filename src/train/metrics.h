// metrics.jsonl: one JSON object a line, for each step and each evaluation (io/README.md).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "trireme/train/step_metrics.h"

namespace trireme {

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
