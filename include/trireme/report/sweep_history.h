// What the folder of a sweep says about its runs. Each has a folder point-N of its own (`trireme
// job sweep`, jobs/README.md). It only reads the folder's files, as RunHistory does.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/report/run_history.h"

namespace trireme {

struct SweepRun {
  std::int64_t point = 0;           // the number in its folder's name
  std::vector<std::string> values;  // one for each of SweepHistory::keys(); empty: not known
  std::string state;                // as RunHistory says, or "not started", "damaged: ..."
  bool running = false, finished = false;
  std::int64_t step = 0;
  std::optional<std::int64_t> total_steps = {};
  // The mean training loss of the last kLossSteps steps, and the last validation loss; NaN: none.
  double loss = std::numeric_limits<double>::quiet_NaN();
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  bool best = false;
};

class SweepHistory {
 public:
  static constexpr std::size_t kLossSteps = 20;

  // Returns whether a folder is that of a sweep: it holds points.txt or a folder point-N, and it is
  // not a run folder.
  static bool is_sweep(const std::string& folder);

  // Reads the folder. Throws RunFolderError if there is none. If a run cannot be read, its state
  // says why.
  explicit SweepHistory(std::string folder);
  // Reads what the runs have written since the last update. Throws as the constructor does.
  void update();

  const std::string& folder() const { return folder_; }
  // The settings in which the runs differ, except run.folder. Those that the sweep varies come
  // first. The values are those of the resolved configurations, or of points.txt for runs that have
  // not started.
  const std::vector<std::string>& keys() const { return keys_; }
  const std::vector<SweepRun>& runs() const { return runs_; }  // by point
  // Returns nullptr if the run has no folder that can be read.
  const RunHistory* history(std::int64_t point) const;
  // Returns whether the best run is the one with the lowest validation loss. It is if any run has
  // one; otherwise the best run is the one with the lowest training loss.
  bool judged_by_validation() const;
  // "4 runs: 1 finished, 1 running, 2 others"
  std::string summary() const;
  bool finished() const;  // all runs are

 private:
  using Values = std::map<std::string, std::string>;
  void find_points();
  SweepRun read(std::int64_t point, Values& values);
  void choose_keys(const std::vector<Values>& values);
  void choose_best();

  std::string folder_;
  std::map<std::int64_t, Values> points_;  // with their values in points.txt
  std::vector<std::string> swept_;         // keys in the order of points.txt
  std::map<std::int64_t, std::unique_ptr<RunHistory>> histories_;
  std::vector<std::string> keys_;
  std::vector<SweepRun> runs_;
};

}  // namespace trireme
