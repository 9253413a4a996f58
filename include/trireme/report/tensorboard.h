// TensorBoard's event files, with scalars for each step and each evaluation.
#pragma once

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/report/step_metrics.h"
#include "trireme/tasks/unit.h"

namespace trireme {

// Cuts the event files of a folder back to the steps up to `step`, so that a resumed run records
// each step once. Also removes records that a killed run left half written. Does nothing if there
// is no such folder. Throws RunFolderError.
void cut_back_event_files(const std::string& folder, std::int64_t step);

// Only rank 0 has one.
class TensorBoardLog {
 public:
  // Creates the folder if there is none, and begins a new file that sorts after the existing ones.
  // The next step will be `step` + 1. `unit` is that of progress. Throws RunFolderError.
  TensorBoardLog(const std::string& folder, std::int64_t step, const tasks::Unit& unit);

  void write(const StepMetrics& metrics);
  void write(const Evaluation& evaluation);

 private:
  using Scalar = std::pair<std::string_view, double>;
  void write_scalars(std::int64_t step, std::initializer_list<Scalar> scalars);
  void append(const std::string& event);

  std::string path_;
  std::string rate_;  // a tag
  std::ofstream file_;
};

}  // namespace trireme
