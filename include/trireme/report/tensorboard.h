// TensorBoard's event files, with scalars for each step and each evaluation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/io/log_file.h"
#include "trireme/tasks/unit.h"

namespace trireme {

// Cuts the event files of a folder back to the steps up to `step`, so that a resumed run records
// each step once. Also removes records that a killed run left half written. Does nothing if there
// is no such folder. A file that cannot be read stays as it is. Throws RunFolderError.
void cut_back_event_files(const std::string& folder, std::int64_t step);

// Only rank 0 has one. Members throw RunFolderError.
class TensorBoardLog {
 public:
  // Creates the folder if there is none, and begins a new file that sorts after the existing ones,
  // with what these lack of `earlier`: the lines of metrics.jsonl so far. The next step will be
  // `step` + 1. `unit` is that of progress.
  TensorBoardLog(const std::string& folder, std::int64_t step, const tasks::Unit& unit,
                 std::string_view earlier);

  // A line of metrics.jsonl, of a step or an evaluation.
  void write(const Json& line);

 private:
  std::string events_of(const Json& line) const;
  std::string missing(const std::string& folder, std::string_view earlier) const;

  std::vector<std::string> tags_;  // fields of a line
  std::optional<LogFile> file_;
};

}  // namespace trireme
