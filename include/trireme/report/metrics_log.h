// Writes metrics.jsonl, with one line (a JSON object) per step and per evaluation, and the same
// data for TensorBoard (io/README.md).
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "trireme/report/step_metrics.h"
#include "trireme/report/tensorboard.h"
#include "trireme/tasks/unit.h"

namespace trireme {

// Only rank 0 has one.
class MetricsLog {
 public:
  // Cuts the metrics in the run folder back to steps up to `step`, so that a resumed run records
  // each step once. `unit` is that of progress. With `tensorboard`, later entries also go to
  // TensorBoard's event files. Throws RunFolderError.
  MetricsLog(const std::string& folder, std::int64_t step, const tasks::Unit& unit,
             bool tensorboard);

  void write(const StepMetrics& metrics);
  void write(const Evaluation& evaluation);  // its time is now

 private:
  void append(const std::string& line);

  std::string path_;
  tasks::Unit unit_;
  std::ofstream file_;
  std::optional<TensorBoardLog> tensorboard_;
};

}  // namespace trireme
