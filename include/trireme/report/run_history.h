// What a run folder says about its run. It only reads the folder's files: it uses no MPI, opens no
// checkpoint and writes nothing. So one can watch a run from any node, while it goes on or later.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/io/run_folder.h"
#include "trireme/report/communication_table.h"
#include "trireme/report/goodput.h"
#include "trireme/report/rank_table.h"
#include "trireme/report/run_events.h"
#include "trireme/report/step_metrics.h"
#include "trireme/tasks/unit.h"

namespace trireme {

enum class RunState {
  kRunning,   // somebody holds the folder and shows signs of life
  kFinished,  // nobody holds it, and the last of run.steps is done and saved
  kStopped,   // nobody holds it, and steps are left
  kSilent,    // it is held, but the holder's process is gone or was not seen for a long time
};
std::string_view name_of(RunState state);  // "running", ...

// Means over some steps; all 0 if there are none.
struct StepAverages {
  std::int64_t steps = 0;
  double step_seconds = 0.0;
  double units_per_second = 0.0;  // all their units / all their time
  double wait_data_share = 0.0;   // share of the steps' time, 0 to 1
  double exposed_comm_share = 0.0;
};
StepAverages average(std::span<const StepMetrics> steps);

// Returns the losses of islands in a row, as in "3.2100 3.2500".
std::string losses_text(std::span<const double> losses);

class RunHistory;

// What a plan has said of the run's step beside what was measured: "predicted 412 ms (390 ms to
// 440 ms), measured 405 ms". Empty where no plan is of this run.
std::string planned_text(const RunHistory& history);
// The median of the steps' seconds without the first ones; nothing where there are too few.
std::optional<double> measured_step(std::span<const StepMetrics> steps);

class RunHistory {
 public:
  struct NewestCheckpoint {
    std::int64_t step = 0;
    std::string path;
    std::int64_t bytes = 0;
    double age = 0.0;  // seconds since it was written
  };

  // Reads the folder. Throws RunFolderError if there is none, or if it is not a run folder.
  explicit RunHistory(std::string folder);

  // Reads what the run has written since the last update. In metrics.jsonl it reads only appended
  // lines, or the whole file again if a resumed run has cut it back. What is
  // half written or damaged stays as it was. Throws RunFolderError if the folder is gone, or
  // something in it cannot be read.
  void update();

  const std::string& folder() const { return folder_; }
  // Sorted by step. Lines that are half written or not ours are left out. A loss or gradient norm
  // that was not finite is NaN.
  const std::vector<StepMetrics>& steps() const { return steps_; }
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  // The unit in which the steps tell progress.
  const tasks::Unit& unit() const { return unit_; }
  // The last `count` steps, or all if there are fewer.
  std::span<const StepMetrics> last_steps(std::size_t count) const;
  // How often metrics.jsonl was found cut back. When it rises, everything derived from steps() must
  // be computed again.
  std::int64_t rewrites() const { return rewrites_; }

  // Empty while config.ini is missing, or if a program with other keys wrote it.
  const std::optional<Config>& config() const { return config_; }
  const std::optional<NewestCheckpoint>& checkpoint() const { return checkpoint_; }
  const std::optional<Lease>& lease() const { return lease_; }
  // The table of ranks; empty until the first window is full (log.stragglers).
  const std::optional<RankTable>& ranks() const { return ranks_; }
  const std::optional<CommunicationTable>& communication() const { return communication_; }
  const std::vector<RunEvent>& events() const { return events_; }

  // These are as of the last update. Ages are in seconds, by this host's clock, and never negative.
  RunState state() const;
  // The state in words, with what the job script did about a stop: "stopped at step 61, requeued".
  std::string state_text() const;
  Goodput goodput() const;    // whole == 0: no start is recorded
  std::int64_t step() const;  // steps done; 0: none known
  // run.steps, or the steps done: earlier versions let a start that trained nothing ask for fewer.
  std::optional<std::int64_t> total_steps() const;
  std::optional<double> metrics_age() const;    // since metrics.jsonl was last written to
  double age(const RunEvent& event) const;      // since it happened
  std::optional<double> heartbeat_age() const;  // since the holder was last seen
  std::optional<double> seconds_left() const;   // of a running run, from its latest steps

 private:
  // Whether the last event tells the end of what holds the folder: it came after the last sign of
  // life.
  bool told_to_have_ended() const;
  void read_metrics();
  void take_line(std::string_view line);
  void read_config();
  void read_checkpoint();
  void read_lease_of_run();

  std::string folder_;
  double now_ = 0.0;  // time of the last update, in seconds since 1970
  std::vector<StepMetrics> steps_;
  tasks::Unit unit_;
  std::vector<Evaluation> evaluations_;
  std::int64_t offset_ = 0;  // in metrics.jsonl; everything before it was read
  std::string last_line_;    // the line that ends at offset_
  std::int64_t rewrites_ = 0;
  std::optional<double> metrics_written_;
  std::optional<Config> config_;
  std::string config_text_;
  std::optional<NewestCheckpoint> checkpoint_;
  std::optional<Lease> lease_;
  std::optional<RankTable> ranks_;
  std::optional<CommunicationTable> communication_;
  std::vector<RunEvent> events_;
  bool holder_alive_ = false;
};

}  // namespace trireme
