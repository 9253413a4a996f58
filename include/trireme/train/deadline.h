// When the scheduler will end this job, and when a run must stop to leave time for its checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace trireme {

// Returns when Slurm will end this job, in seconds since 1970: SLURM_JOB_END_TIME where Slurm sets
// it, otherwise what squeue says. squeue is asked once and given ten seconds. Returns nullopt
// outside of a job, for a job without a limit, and where neither source says anything. Call it on
// one rank.
std::optional<double> job_end_time();

// What squeue says now: Slurm gives a job that was suspended its time back, and an operator may
// give it more. nullopt where squeue says nothing within ten seconds.
std::optional<double> job_end_time_by_squeue();

// Parses a time as squeue prints it (%e): "2024-05-31T17:04:09", local time. Returns nullopt for
// anything else.
std::optional<double> parse_end_time(const std::string& text);

class Deadline {
 public:
  // `end` is in seconds since 1970; nullopt: there is no end. `checkpoint_seconds` is the assumed
  // time of a checkpoint until one has been measured. `margin_seconds` is kept free between the
  // last checkpoint and the end, for the ranks to end and the script to requeue. `ask_again` says
  // what the end is now; it is asked before a step is made the last.
  Deadline(std::optional<double> end, double checkpoint_seconds, double margin_seconds,
           std::function<std::optional<double>()> ask_again = {});

  // Report a measured time, in seconds.
  void step_took(double seconds);
  void evaluation_took(double seconds);
  void checkpoint_took(double seconds);

  // What the configuration makes due in the next two steps.
  struct Ahead {
    int evaluations = 0;
    bool checkpoint = false;  // after the first of the two
    int queued_steps = 0;     // not computed yet, ahead of these two
  };

  // Call it at the start of a step. Returns whether this step must be the last. `now` is in seconds
  // since 1970. The step must be the last when another one, with the evaluations and checkpoints in
  // between, would leave too little time for a checkpoint. So every start of a job makes at least
  // one step.
  bool wants_stop(double now, const Ahead& ahead);

 private:
  bool is_late(double now, const Ahead& ahead) const;
  double checkpoint_seconds() const;

  std::optional<double> end_;
  double expected_checkpoint_, margin_;
  std::function<std::optional<double>()> ask_again_;
  double step_ = 0.0, evaluation_ = 0.0, checkpoint_ = 0.0;  // the longest so far
};

}  // namespace trireme
