// Chrome traces (chrome://tracing, ui.perfetto.dev): what ranks computed, waited for and sent.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/json.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/io/output_file.h"

namespace trireme {

// A rank as a viewer shows it.
struct TracedRank {
  int rank = 0;
  std::string title;          // "rank 3: data 0, pipeline 1, tensor 1 (n1)"
  std::int64_t shift_ns = 0;  // is added to its times
};

// Returns one rank's trace as events of the format: a track for what computes, one for its waits,
// and one for each queue of a communicator.
Json chrome_events(const Trace& trace, const TracedRank& rank);

// Writes the file. Members throw RunFolderError.
class ChromeTraceFile {
 public:
  explicit ChromeTraceFile(const std::string& path);

  void add(const Json& events);
  void finish();

 private:
  OutputFile file_;
  bool first_ = true;
};

}  // namespace trireme
