// comm.tune: finds out by measurement which algorithms carry the collectives of a run fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/report/communication_table.h"
#include "trireme/setup/communication.h"

namespace trireme {

// Every rank has one. The communicators are tuned one by one, each by its own ranks.
// For each size of a collective the algorithm of the table and the two others that the model of the
// network likes best are tried, on tensors that MPI carries.
class AlgorithmTuner {
 public:
  // Collective over the world.
  AlgorithmTuner(Runtime& runtime, const ProcessGrid& grid, const NetworkOfJob& network,
                 const Config::Comm& comm);

  // Collective over the grid. Before the first step: with comm.order any, tries the algorithms on
  // scratch buffers of up to `most_bytes` on the host, all of MPI's own that it lets us choose
  // among them, and changes the tables. Does nothing with comm.order tree.
  void try_on_scratch(std::size_t most_bytes);

  // Right before the first step: the communicators of the grid and, with comm.order tree, those of
  // the stage itself watch from now on what they carry.
  void steps_begin(const parallel::Stage& stage);
  // Collective over the grid; after each step. With comm.order tree, chooses after the first one
  // what is tried in the next ones, and changes the tables when all of it is measured. Nothing
  // changes a bit.
  void step_done();

  // Returns what has been found since the last call, a line for each communicator of this rank.
  std::vector<std::string> news();
  // Everything that was found, by communicator of this rank.
  const std::vector<TunedCollective>& found() const { return found_; }

 private:
  struct Tuned {
    PlannedComm of;
    int steps = 0;  // since the trials began
    enum class State { kWatching, kTrying, kDone } state = State::kWatching;
  };

  void tune(std::vector<PlannedComm> communicators);
  bool is_free(Collective collective) const;
  std::vector<AlgorithmTrial> trials_for(
      const Tuned& tuned, const std::vector<AlgorithmTrials::Carried>& carried) const;
  void begin_trials(Tuned& tuned);
  void end_trials(Tuned& tuned);
  void follow(Tuned& tuned, const std::vector<TrialOutcome>& outcomes);
  // Returns nothing if some calls have not ended everywhere.
  std::optional<std::vector<TrialOutcome>> outcomes_of(const Tuned& tuned) const;
  void record(const Tuned& tuned, const std::vector<TrialOutcome>& outcomes);
  double try_size(Tuned& tuned, std::size_t bytes);

  Runtime& runtime_;
  const NetworkOfJob& network_;
  bool any_order_;
  std::vector<ChosenAlgorithm> chosen_;
  std::int64_t clock_offset_ns_;
  std::vector<Tuned> communicators_;
  std::vector<TunedCollective> found_;
  std::vector<std::string> news_;
};

}  // namespace trireme
