// Runs the points of a scaling study: one after the other on this host or inside an allocation, or
// each as a separate job.
#pragma once

#include <string>
#include <vector>

#include "trireme/job/job_script.h"
#include "trireme/study/scaling_study.h"

namespace trireme::cli {

struct ScaleLaunch {
  std::string launcher;  // "mpiexec", "srun", "sbatch"; empty: the user must choose
  std::string program;   // absolute path of trireme
  Site site;
  std::string time;  // time limit of one job
  int cpus_per_rank = 1;
  bool cpus_given = false;

  ClusterLimits limits() const {  // as far as the site tells them
    return {site.memory, site.gpu_memory, launcher == "sbatch" && loads_program(site), {}};
  }
};

// Catches the signals that end a run (stop_signals), which it blocks from its construction on, for
// polling.
class StudySignals {
 public:
  StudySignals();
  // Sleeps up to `seconds`; wakes up earlier for a signal or the end of a child process.
  void wait(double seconds);
  bool arrived() const { return arrived_; }

 private:
  bool arrived_ = false;
};

// Returns "srun" inside an allocation of Slurm. Elsewhere returns "mpiexec", but an empty text if
// there is an sbatch: that is a login node, on which nobody wants to run a study by accident.
std::string default_launcher();

// Throws ConfigError if the launcher is missing or not chosen, or cannot start `most_nodes` nodes
// from here.
void check_launcher(const ScaleLaunch& launch, int most_nodes);

// Returns the command that starts the point whose folder is `folder`.
std::vector<std::string> launch_command(const ScaleLaunch& launch, const scaling::Point& point,
                                        int ranks_per_node, const std::string& folder);

// Run the points that are not done, and print a line for each. Throw the Error that a point ended
// with. Return false if a signal stopped the study.
bool run_here(const ScaleLaunch& launch, const scaling::StudyFolder& study,
              const scaling::StudyPlan& plan, const std::vector<scaling::Point>& points);
bool run_as_jobs(const ScaleLaunch& launch, const scaling::StudyFolder& study,
                 const scaling::StudyPlan& plan, const std::vector<scaling::Point>& points);

// Returns the line about a point that is done.
std::string progress_line(std::size_t number, std::size_t count,
                          const scaling::PointResult& result);

// Throws the fault of a point as an Error, with its status and the last line that it printed about
// the fault.
[[noreturn]] void throw_failed(const scaling::StudyFolder& study, const scaling::Point& point,
                               int status);

}  // namespace trireme::cli
