// This job as one of several that carry a run (sync.member): between its steps it meets the others
// through the files of the folder that they share (io/ISLANDS.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/io/island_member.h"
#include "trireme/parallel/meeting.h"

#include "train/prepared_run.h"
#include "train/run_checkpoints.h"
#include "train/run_journal.h"

namespace trireme {

// Collective over the world. Throws ConfigError where the run in run.folder is carried by members
// and this job is none or has other settings, or where it is carried by one job and this is a
// member.
void check_members(Communicator& world, const Config& config);

class RunMember : private IslandWork {
 public:
  struct Parts {
    PreparedRun& run;
    RunCheckpoints& checkpoints;
    RunJournal& journal;
    std::function<bool()> wants_stop;  // asked on every rank while this waits
    std::int64_t steps = 0;            // of the run, after which this start goes on
  };
  // Collective over the world. What `parts` names must outlive this object. From now on others see
  // that the member lives. Throws RunFolderError.
  explicit RunMember(Parts parts);
  ~RunMember() override;

  // The steps from an outer state to the next delivery.
  struct Leg {
    std::int64_t outer = 0;   // the number of the state
    std::int64_t first = 0;   // steps of the run that are done in it
    std::int64_t length = 0;  // steps of the run that the leg stands for
    std::int64_t steps = 0;   // of this member; others may do more or fewer in the time
    SampleRanges samples;
    bool is_own = false;  // this member has made the state

    // The steps of the run that are done before the i-th step of the leg.
    std::int64_t position(std::int64_t i) const { return first + i * length / steps; }
  };
  // Collective over the world. Waits for an outer state to go on from, and takes its weights;
  // meanwhile this member may make the state. Nothing: the run has its last state (finished()), or
  // somebody wants this job to stop. Throws RunFolderError and CheckpointError.
  std::optional<Leg> next();
  bool finished() const { return finished_; }
  // Whether this member has made the run's last state.
  bool made_last() const { return made_last_; }

  // Collective over the world; no step is queued. Delivers what was learned in the first `steps` of
  // the leg. `targets` are those of the samples, `seconds` the time of a step.
  void deliver(std::int64_t steps, std::int64_t targets, double seconds);

  // Factor of the learning rate of the next step: one that joins late warms up (sync.rejoin).
  double warm_up() const;
  void step_done();
  // Steps of the run that are done as this member counts them: it leaps over those that the run
  // did without it.
  std::int64_t steps() const { return steps_; }

 private:
  struct Shared;  // on the leading rank

  std::string first_state(const std::string& file) override;
  Made next_state(const OuterRecord& previous, const std::vector<Settled>& settled,
                  const std::string& file) override;
  bool load(const OuterRecord& record) override;

  bool leads() const { return run_.leads(); }
  Communicator& world() const { return run_.runtime.world(); }
  Json order(const Json& command);
  Json perform(const Json& command);
  Json follow();
  void look();
  void tell_wait(double seconds);
  Json make_first(const std::string& file);
  Json make_next(const Json& command);
  Json take_state(const Json& command);
  bool hold(const TensorFile& state);
  std::string path_of(const std::string& file) const;
  std::string digest_of_file(const std::string& path) const;
  std::optional<Checkpoint> open(const std::string& file);
  void add_up(const std::vector<Checkpoint>& learned, const std::vector<float>& shares);
  void add_up_states(const std::vector<Checkpoint>& learned, const std::vector<float>& shares);
  std::vector<TensorSlice> states(bool owned_only) const;
  std::string write_state(const std::string& file, std::int64_t updates, std::int64_t samples);
  Leg leg_of(const Json& start) const;
  Json start_of(const OuterRecord& record);
  void tell_start(const Leg& leg, double waited);
  void tell_uncounted();
  void keep_last_state();

  PreparedRun& run_;
  RunCheckpoints& checkpoints_;
  RunJournal& journal_;
  std::function<bool()> wants_stop_;
  std::int64_t every_;
  parallel::Meeting meeting_;
  std::optional<TensorFile> held_;  // the outer state that the meeting has
  std::optional<Leg> leg_;
  bool finished_ = false, made_last_ = false;
  std::int64_t steps_;
  std::int64_t warm_steps_ = 0;     // that are still to come
  std::unique_ptr<Shared> shared_;  // the last member: its heart stops first
};

}  // namespace trireme
