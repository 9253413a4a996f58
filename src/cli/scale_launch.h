// Runs the points of a scaling study: one after the other on this host or inside of an allocation,
// or each as a job of its own.
#pragma once

#include <string>
#include <vector>

#include "trireme/study/scaling_study.h"
#include "trireme/train/job_script.h"

namespace trireme::cli {

struct ScaleLaunch {
  std::string launcher;  // "mpiexec", "srun", "sbatch"
  std::string program;   // absolute path of trireme
  Site site;
  std::string time;  // of one job
  int cpus_per_rank = 1;
  bool cpus_given = false;
};

// SIGTERM, SIGUSR1 and SIGINT as a question, blocked while the object lives.
class StudySignals {
 public:
  StudySignals();
  // Sleeps up to `seconds`, less where a signal or the end of a child comes.
  void wait(double seconds);
  bool arrived() const { return arrived_; }

 private:
  bool arrived_ = false;
};

// Throws ConfigError where the launcher is not there, or cannot start so many nodes from here.
void check_launcher(const ScaleLaunch& launch, int most_nodes);

// What starts a point whose folder is `folder`.
std::vector<std::string> launch_command(const ScaleLaunch& launch, const scaling::Point& point,
                                        int ranks_per_node, const std::string& folder);

// Runs the points that are not done, and says a line for each. Throws the Error that a point ended
// with. False where a signal stopped it.
bool run_here(const ScaleLaunch& launch, const scaling::StudyFolder& study,
              const scaling::StudyPlan& plan, const std::vector<scaling::Point>& points);
bool run_as_jobs(const ScaleLaunch& launch, const scaling::StudyFolder& study,
                 const scaling::StudyPlan& plan, const std::vector<scaling::Point>& points);

// The fault of a point as an Error: its status, and the last line that it said of it.
[[noreturn]] void throw_failed(const scaling::StudyFolder& study, const scaling::Point& point,
                               int status);

}  // namespace trireme::cli
