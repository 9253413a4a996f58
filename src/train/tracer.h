// Writes chosen steps as a Chrome trace (chrome://tracing, ui.perfetto.dev): what each rank
// computed, sent and waited for, with all ranks on one clock. The file's format is in
// io/RUN_FOLDER.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/config/step_range.h"

namespace trireme {

// Collective over the world. Returns for each node the nanoseconds to add to its ranks' clock to
// get the clock of rank 0. It is measured from the message with the fastest round trip, assuming
// half of that time each way. Ranks of a node share a clock.
std::vector<std::int64_t> clock_offsets(RankRuntime& runtime);

class Tracer {
 public:
  // `stream` is the one that computes. On a GPU its activities are traced, not the host's.
  Tracer(const ProcessGrid& grid, const Stream& stream, StepRange steps, std::string path)
      : grid_(grid), stream_(stream), steps_(steps), path_(std::move(path)) {}

  void before(std::int64_t step);
  // Collective over the world. After the last traced step, or an earlier one with `last`, rank 0
  // writes the file and returns a line about it; with `last` and no traced step, a line that says
  // so. Otherwise returns an empty string.
  std::string after(std::int64_t step, bool last);

 private:
  std::string title() const;  // of this rank

  const ProcessGrid& grid_;
  const Stream stream_;
  StepRange steps_;
  std::string path_;
  std::int64_t begun_ = 0;  // the first step of the trace in progress; 0: none
  bool written_ = false;
  std::int64_t begin_ns_ = 0;
};

}  // namespace trireme
