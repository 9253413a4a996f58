// A chain of jobs whose steps take the same time, and may fail.
#pragma once

#include <cstdint>

#include "trireme/plan/campaign.h"

namespace trireme::plan {

// A part of a chain: expected seconds and failures.
struct ChainPart {
  CampaignTimes times;
  double failures = 0.0;
  double checkpoints = 0.0;
};

class JobChain {
 public:
  // Steps of `step` seconds. `input` has passed plan_campaign's checks and must outlive this.
  JobChain(const CampaignInput& input, std::int64_t steps, double step);

  std::int64_t checkpoint_every() const { return every_; }
  double checkpoint_seconds() const { return write_; }
  double start_seconds() const { return start_; }                // with reading a checkpoint
  double between_failures() const { return between_failures_; }  // seconds; infinite: never
  // The steps that a job does if there are enough. Throws ConfigError where it can do none.
  std::int64_t steps_of_job() const { return steps_of_job_; }
  // Those of the first job: fewer where it has to guess the time of its first checkpoint.
  std::int64_t steps_of_first() const { return steps_of_first_; }
  bool first_is_shorter() const;
  std::int64_t jobs() const;

  double last_job_seconds() const;  // expected
  // The whole chain, with the queue.
  ChainPart all() const;
  // The standard deviation of what failures lose in all, in seconds.
  double spread() const;

 private:
  std::int64_t steps_between_checkpoints() const;
  ChainPart job(std::int64_t steps) const;
  void add_start(ChainPart& to) const;
  void add_segment(ChainPart& to, std::int64_t steps, double times) const;
  double until_last_checkpoint(std::int64_t steps) const;
  std::int64_t most_steps_until(double seconds) const;
  std::int64_t steps_of_last() const;
  std::int64_t most_steps_by_deadline(double write) const;
  std::int64_t count_steps_of_job() const;
  std::int64_t count_steps_of_first() const;
  void check_first_step() const;

  const CampaignInput& input_;
  std::int64_t steps_;
  double step_;   // seconds
  double write_;  // seconds of a checkpoint
  double start_;  // seconds
  double between_failures_;
  std::int64_t every_;
  std::int64_t steps_of_job_, steps_of_first_;
};

}  // namespace trireme::plan
