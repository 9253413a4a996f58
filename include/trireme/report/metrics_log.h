// metrics.jsonl: one JSON object a line, for each step and each evaluation; and the same for
// TensorBoard (io/README.md).
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "trireme/report/step_metrics.h"
#include "trireme/report/tensorboard.h"

namespace trireme {

// Written by rank 0 alone.
class MetricsLog {
 public:
  // Cuts what is in the run folder back to steps up to `step`, so that a resumed run tells its
  // story once. With `tensorboard` what comes is written to event files too. Throws
  // RunFolderError.
  MetricsLog(const std::string& folder, std::int64_t step, bool tensorboard);

  void write(const StepMetrics& metrics);
  void write_evaluation(std::int64_t step, double loss);

 private:
  void append(const std::string& line);

  std::string path_;
  std::ofstream file_;
  std::optional<TensorBoardLog> tensorboard_;
};

}  // namespace trireme
