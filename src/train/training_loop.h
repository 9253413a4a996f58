// The steps of a run, from the checkpoint that it goes on from to its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/setup/hang_limit.h"
#include "trireme/tasks/task.h"
#include "trireme/train/checkpoint_cadence.h"
#include "trireme/train/deadline.h"
#include "trireme/train/share_balance.h"
#include "trireme/train/signals.h"

#include "train/communication_watch.h"
#include "train/evaluated_weights.h"
#include "train/island_meetings.h"
#include "train/prepared_run.h"
#include "train/rank_watch.h"
#include "train/run_checkpoints.h"
#include "train/run_journal.h"
#include "train/run_member.h"
#include "train/step_queue.h"
#include "train/tracer.h"

namespace trireme {

class TrainingLoop {
 public:
  // Collective over the world. Restores the checkpoint that run.resume asks for, or draws initial
  // values, and records the start. `run` and `signals` must outlive this object.
  TrainingLoop(PreparedRun& run, const StopSignals& signals);

  // Collective over the world. Trains to the last step, or until a signal or the job's time limit
  // stops the run after a checkpoint. Throws what train() throws.
  ExitStatus run();

 private:
  RunCheckpoints::Position resume();
  std::optional<CommunicationWatch> watch_communication();
  void tell_start(const std::string& network) const;
  void write_records() const;
  RunJournal open_journal();
  RankWatch watch_ranks() const;
  std::optional<ShareBalance> balance_shares() const;
  std::optional<Tracer> trace_steps() const;
  std::optional<Deadline> deadline_of_job() const;
  double expected_checkpoint_seconds() const;
  void start_record();
  void note_start(std::size_t connections);
  ExitStatus loop();

  // Steps that are read one after the other: all that are left, or a member's up to its delivery.
  struct Leg {
    std::int64_t end = 0;  // the last step
    BatchPlan samples;
    std::optional<RunMember::Leg> of_member = {};
  };
  std::optional<Leg> next_leg();
  void train(const Leg& leg);
  double learning_rate(const Leg& leg, std::int64_t i) const;
  bool stops() const;

  bool is_member() const { return prepared_.config.sync.is_member(); }
  void make_member();
  std::optional<RunMember::Leg> wait_for_state();
  void note_stop();
  bool evaluates_outer(const RunMember::Leg& leg) const;
  void deliver(std::int64_t steps);

  std::vector<StepQueue::Known> train_step(tasks::StepReader& reader, double learning_rate,
                                           std::int64_t end);
  void queue_step(tasks::StepReader& reader, double learning_rate);
  bool on_some_island(bool here) const;
  bool wants_stop();
  void tell(const StepQueue::Known& step);
  void count_skipped(const StepMetrics& metrics);
  [[noreturn]] void end_diverged(const std::string& what);
  void settle_all();
  void tell_tuned();
  void meet_now();
  void check_copies_now();
  void evaluate_after(std::int64_t step);
  void tell_older_evaluations(std::optional<std::int64_t> most);
  void check_weights();
  bool change_shares();
  bool save();
  void tell_skipped();
  void trace_done(bool last = false);

  RunCheckpoints::Position position() const;
  bool leads() const { return prepared_.leads(); }
  std::int64_t total_steps() const { return prepared_.config.run.steps; }
  std::int64_t queued_steps() const;
  bool due(std::int64_t every, std::int64_t step) const;
  bool checks_copies_now() const;
  bool evaluates() const;
  bool evaluates_now() const;
  bool saves_now() const;

  PreparedRun& prepared_;
  const StopSignals& signals_;
  HangLimit hang_limit_;
  IslandMeetings meetings_;
  RunCheckpoints checkpoints_;
  const RunCheckpoints::Position start_;
  const double expected_checkpoint_;                 // seconds, until this start has measured one
  std::optional<CommunicationWatch> communication_;  // on the leading rank
  RunJournal journal_;
  RankWatch rank_watch_;
  std::optional<ShareBalance> balance_;  // with batch.balance auto, on ranks that compute on CPUs
  std::optional<Tracer> tracer_;         // with log.trace
  std::optional<Deadline> deadline_;     // on the leading rank
  CheckpointCadence cadence_;
  StepQueue queue_;
  EvaluatedWeights evaluated_;
  const optim::LearningRateSchedule rate_;
  std::optional<RunMember> member_;            // with sync.member, once the steps begin
  std::int64_t targets_ = 0;                   // of the leg's steps so far
  double seconds_of_steps_ = 0;                // likewise, of those that are known
  std::optional<std::int64_t> skipped_since_;  // see RunCheckpoints::Position
  std::int64_t skipped_in_a_row_ = 0;          // likewise
  StepMetrics last_;                           // metrics of the last known step
  std::int64_t step_number_ = 0;               // steps queued
  std::int64_t samples_ = 0;                   // consumed by them
  bool stop_ = false;                          // some rank wants to stop
  int signal_ = 0;                             // that has arrived at some rank; 0: none
  bool older_evaluations_;                     // see RunCheckpoints::Position; it was not told yet
  bool late_ = false;                          // this rank does, because the job's end is near
};

}  // namespace trireme
