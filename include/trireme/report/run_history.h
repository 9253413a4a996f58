// What a run folder says of its run, from its files alone: no MPI, no checkpoint is opened, nothing
// is written. For who looks on from outside, from any node, while the run goes on or afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/run_folder.h"
#include "trireme/report/rank_table.h"
#include "trireme/report/run_events.h"
#include "trireme/report/step_metrics.h"

namespace trireme {

enum class RunState {
  kRunning,   // somebody holds the folder and shows signs of life
  kFinished,  // nobody holds it, and the last of run.steps is done and saved
  kStopped,   // nobody holds it, and steps are left
  kSilent,    // it is held, but the holder's process is gone or was not seen for long
};
std::string_view name_of(RunState state);  // "running", ...

// Means of some steps; all 0 of none.
struct StepAverages {
  std::int64_t steps = 0;
  double step_seconds = 0.0;
  double tokens_per_second = 0.0;  // of all of their tokens in all of their time
  double wait_data_share = 0.0;    // of the steps' time, 0 to 1
  double exposed_comm_share = 0.0;
};
StepAverages average(std::span<const StepMetrics> steps);

class RunHistory {
 public:
  struct NewestCheckpoint {
    std::int64_t step = 0;
    std::string path;
    std::int64_t bytes = 0;
    double age = 0.0;  // seconds since it was written
  };

  // Reads the folder. Throws RunFolderError where there is none, or it is not a run's.
  explicit RunHistory(std::string folder);

  // Reads what the run has written since. Of metrics.jsonl that is what was appended; where a
  // resumed run has cut it back it is read anew. What cannot be read for the moment stays as it
  // was. Throws RunFolderError where the folder is gone.
  void update();

  const std::string& folder() const { return folder_; }
  // By rising step. A line that is half written, or none of ours, is left out. A loss or gradient
  // norm that was not finite is NaN.
  const std::vector<StepMetrics>& steps() const { return steps_; }
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  // The last `count` of the steps, or all.
  std::span<const StepMetrics> last_steps(std::size_t count) const;
  // How often metrics.jsonl was found cut back: what is derived from steps() must be made anew.
  std::int64_t rewrites() const { return rewrites_; }

  // None while config.ini is missing, or of a program that knows other keys.
  const std::optional<Config>& config() const { return config_; }
  const std::optional<NewestCheckpoint>& checkpoint() const { return checkpoint_; }
  const std::optional<Lease>& lease() const { return lease_; }
  // None until the first window is full (log.stragglers).
  const std::optional<RankTable>& ranks() const { return ranks_; }
  const std::vector<RunEvent>& events() const { return events_; }

  // All as of the last update. Ages are in seconds, by this host's clock, and never negative.
  RunState state() const;
  std::int64_t step() const;                        // steps done; 0: none is known of
  std::optional<std::int64_t> total_steps() const;  // run.steps
  std::optional<double> metrics_age() const;        // since metrics.jsonl was last written to
  double age(const RunEvent& event) const;          // since it happened
  std::optional<double> heartbeat_age() const;      // since the holder was last seen
  std::optional<double> seconds_left() const;       // of a running one, by its latest steps

 private:
  void read_metrics();
  void take_line(std::string_view line);
  void read_config();
  void read_checkpoint();
  void read_lease_of_run();

  std::string folder_;
  double now_ = 0.0;  // of the last update, seconds since 1970
  std::vector<StepMetrics> steps_;
  std::vector<Evaluation> evaluations_;
  std::int64_t offset_ = 0;  // of metrics.jsonl: what comes before was read
  std::string last_line_;    // which ends there
  std::int64_t rewrites_ = 0;
  std::optional<double> metrics_written_;
  std::optional<Config> config_;
  std::string config_text_;
  std::optional<NewestCheckpoint> checkpoint_;
  std::optional<Lease> lease_;
  std::optional<RankTable> ranks_;
  std::vector<RunEvent> events_;
  bool holder_alive_ = false;
};

}  // namespace trireme
