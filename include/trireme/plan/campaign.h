// How long a whole training takes, as a chain of jobs with a time limit each: the calendar, the
// nodes' hours and the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/json.h"

namespace trireme::plan {

// A predicted or measured number, and the ends of the interval that holds nine of ten.
struct Estimate {
  double low = 0.0, expected = 0.0, high = 0.0;
};

// What a training is to do: one of the three is above 0.
struct CampaignGoal {
  std::int64_t steps = 0;
  double units = 0.0;   // tokens or samples
  double epochs = 0.0;  // times the data
  double units_of_data = 0.0;
};

// How often checkpoints are written: after so many steps (0: only at a job's end), after so many
// seconds, or, with neither, by the rule of checkpoint.every auto.
struct CheckpointRule {
  std::optional<std::int64_t> steps = {};
  std::optional<double> seconds = {};
};

struct CampaignInput {
  Estimate step_seconds;
  double units_of_step = 0.0;
  std::string unit = "tokens";  // or "samples"
  CampaignGoal goal;
  int nodes = 1;

  // Jobs, in seconds.
  std::optional<double> job_limit = {};  // nothing: one job without a limit
  std::optional<double> grace = {};      // job.grace: a signal comes so long before the limit
  double margin = 10.0;                  // checkpoint.margin
  // From a job's start until its first step, without reading a checkpoint. The default is the most
  // that was measured: 64 ranks on two cores take 5.0, a GPU's run 2.9 (perf/RESULTS.md, "Starting"
  // and "On an H200"). Starts of thousands of ranks were not measured; events.jsonl tells a run's.
  double start = 5.0;
  double queue = 0.0;  // between the end of a job and the start of the next
  // From a failure until the program is started again. The default is the most that was measured,
  // a lost node's 57.5 (perf/RESULTS.md, "Failures and stragglers").
  double notice = 60.0;

  double checkpoint_bytes = 0.0;
  double write_rate = 0.0;               // bytes per second, of whole checkpoints with their sync
  std::optional<double> read_rate = {};  // nothing: the write rate
  CheckpointRule checkpoint_every = {500, {}};
  int kept_checkpoints = 3;
  // Seconds between failures: of the whole job (checkpoint.mtbf, which is in hours), or of one
  // node, which counts divided by `nodes`. At most one of the two; neither: nothing fails.
  std::optional<double> mtbf = {}, node_mtbf = {};

  std::int64_t evaluate_every = 0;  // steps; 0: never
  double evaluation_steps = 0.0;    // an evaluation takes as long as so many steps
  double begin = 0.0;               // when the first job starts, in seconds since 1970
};

// Expected seconds of all jobs, by what they are used for.
struct CampaignTimes {
  double computing = 0.0;  // of kept steps
  double evaluation = 0.0;
  double checkpoints = 0.0;
  double starts = 0.0;    // of jobs
  double repeated = 0.0;  // work that failures undid
  double restarts = 0.0;  // noticing failures and starting again
  double queue = 0.0;

  double on_nodes() const {
    return computing + evaluation + checkpoints + starts + repeated + restarts;
  }
  double whole() const { return on_nodes() + queue; }
};

struct Campaign {
  std::int64_t steps = 0;
  std::int64_t jobs = 0;          // of the chain
  std::int64_t steps_of_job = 0;  // of every job but the last, and the first where a remark says so
  std::int64_t checkpoint_every = 0;      // steps; 0: only at the end of jobs
  double checkpoint_seconds = 0.0;        // of one
  double checkpoints = 0.0;               // written and kept in use, beside repeated ones
  double failures = 0.0;                  // expected number
  std::optional<double> mtbf = {};        // seconds, of the job
  CampaignTimes times;                    // their sum is seconds.expected
  Estimate seconds;                       // from the first job's start until the last one's end
  Estimate end;                           // seconds since 1970
  double goodput = 0.0;                   // share of kept steps in the whole time, as in a report
  double node_hours = 0.0;                // of jobs, not of the queue
  double node_hours_per_billion = 0.0;    // units
  double disk = 0.0;                      // bytes of kept checkpoints and metrics.jsonl
  double most_disk = 0.0;                 // with a checkpoint that is written, and a spared one
  std::vector<std::string> remarks = {};  // what the user should know
};

// The expected course. Without failures it is exact for a chain of jobs that do what the trainer
// does: a job stops at the step after which 1.5 checkpoints and the margin no longer fit before its
// limit, or with the step during which the signal comes, and writes a checkpoint.
//
// Failures are a Poisson process in the time that jobs run, with a mean M between them. Work of w
// seconds that begins anew after each failure, which takes D to be noticed and a start of S that
// may fail, too, takes (M + D) exp(S / M) (exp(w / M) - 1) seconds on average. With D = 0 that is
// the wall time of Daly (2006, see checkpoint_interval.h). w is the work between two checkpoints
// with the second of them. All restarts are within the job, on as many nodes.
//
// The interval joins that of the step and nine of ten courses of the failures, whose number is
// Poisson's and each of which loses a restart and an even share of w.
//
// Throws ConfigError in one line for what cannot be: a step, start or checkpoint for which a job's
// limit leaves no time, failures so often that no step is kept, nothing asked for, a number that is
// negative or not finite, and what ends after more than 10^15 seconds.
Campaign plan_campaign(const CampaignInput& input);

// Lines for people.
std::vector<std::string> campaign_lines(const CampaignInput& input, const Campaign& campaign);
// src/plan/README.md lists the keys.
Json campaign_json(const CampaignInput& input, const Campaign& campaign);

}  // namespace trireme::plan
