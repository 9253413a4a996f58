// Writes metrics.jsonl, with one line (a JSON object) per step and per evaluation, and the same
// data for TensorBoard (io/RUN_FOLDER.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/json.h"
#include "trireme/io/log_file.h"
#include "trireme/report/step_metrics.h"
#include "trireme/report/tensorboard.h"
#include "trireme/tasks/unit.h"

namespace trireme {

// Only rank 0 has one.
class MetricsLog {
 public:
  // Cuts the metrics in the run folder back to steps up to `step`, so that a resumed run records
  // each step once. `unit` is that of progress. With `tensorboard`, all entries also go to
  // TensorBoard's event files, earlier ones if they are missing there. Throws RunFolderError.
  MetricsLog(const std::string& folder, std::int64_t step, const tasks::Unit& unit,
             bool tensorboard);

  void write(const StepMetrics& metrics);
  void write(const Evaluation& evaluation);  // its time is now

 private:
  void append(const Json& line);

  std::string path_;
  tasks::Unit unit_;
  std::optional<LogFile> file_;
  std::optional<TensorBoardLog> tensorboard_;
};

}  // namespace trireme
