// When the scheduler will end this job, and when a run must stop to leave time for its checkpoint.
#pragma once

#include <optional>
#include <string>

namespace trireme {

// Seconds since 1970 at which Slurm will end this job: SLURM_JOB_END_TIME where Slurm sets it,
// otherwise what squeue says, which is asked once and given ten seconds. Nothing outside of a job,
// for a job without a limit, and where neither says anything. Call it on one rank.
std::optional<double> job_end_time();

// A time as squeue prints it (%e): "2024-05-31T17:04:09", local time; nothing for anything else.
std::optional<double> parse_end_time(const std::string& text);

class Deadline {
 public:
  // A checkpoint may take so much longer than the longest so far.
  static constexpr double kCheckpointFactor = 1.5;

  // `end` in seconds since 1970; nothing: there is no end. `checkpoint_seconds`: what a checkpoint
  // is thought to take until one has been measured. `margin_seconds`: what is kept free between the
  // last checkpoint and the end, in which the ranks end and the script requeues.
  Deadline(std::optional<double> end, double checkpoint_seconds, double margin_seconds);

  // What was measured, in seconds.
  void step_took(double seconds);
  void evaluation_took(double seconds);
  void checkpoint_took(double seconds);

  // What the configuration foresees for the next two steps.
  struct Ahead {
    int evaluations = 0;
    bool checkpoint = false;  // after the first of the two
    int queued_steps = 0;     // that are still to be computed before them
  };

  // Asked at the start of a step, at `now`, seconds since 1970: whether this step must be the last.
  // It must when another one, with what comes between, would leave too little for a checkpoint. So
  // every start of a job makes one step at least.
  bool wants_stop(double now, const Ahead& ahead) const;

 private:
  double checkpoint_seconds() const;

  std::optional<double> end_;
  double expected_checkpoint_, margin_;
  double step_ = 0.0, evaluation_ = 0.0, checkpoint_ = 0.0;  // the longest so far
};

}  // namespace trireme
