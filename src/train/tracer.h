// Chosen steps as a Chrome trace (chrome://tracing, ui.perfetto.dev): what each rank computed, sent
// and waited for, all ranks on one clock. The file's format is in io/README.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/config/step_range.h"

namespace trireme {

// What to add to a rank's clock to have the clock of rank 0, in nanoseconds, for each node: half a
// round trip is taken off the answer that came back fastest. Ranks of a node share a clock.
// Collective over the world.
std::vector<std::int64_t> clock_offsets(Runtime& runtime);

class Tracer {
 public:
  // `stream`: that computes; on a GPU its activities are traced, and not its host's.
  Tracer(const ProcessGrid& grid, const Stream& stream, StepRange steps, std::string path)
      : grid_(grid), stream_(stream), steps_(steps), path_(std::move(path)) {}

  void before(std::int64_t step);
  // After the last traced step, or any earlier one with `last`: rank 0 writes the file, and a line
  // about it is returned there; otherwise returns nothing. Collective over the world.
  std::string after(std::int64_t step, bool last);

 private:
  const ProcessGrid& grid_;
  const Stream stream_;
  StepRange steps_;
  std::string path_;
  std::int64_t begun_ = 0;  // the first step of the trace that is being taken; 0: none
  std::int64_t begin_ns_ = 0;
};

}  // namespace trireme
