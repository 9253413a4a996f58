// Runs the points of a study as jobs of their own.

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/io/whole_file.h"

#include "cli/sbatch.h"
#include "cli/scale_launch.h"
#include "cli/subprocess.h"

namespace trireme::cli {
namespace {

// The points of a study share the job's name, so `singleton` runs them one at a time. Otherwise
// they would disturb each other on the network.
constexpr const char* kTemplate = R"(#!/usr/bin/env bash
#SBATCH --job-name=@NAME@
#SBATCH --output=@LOG@
#SBATCH --time=@TIME@
#SBATCH --mem=@MEMORY@
#SBATCH --no-requeue
#SBATCH --dependency=singleton
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=@TASKS_PER_NODE@
#SBATCH --cpus-per-task=@CPUS_PER_TASK@
# @SITE_SBATCH@
# One point of a scaling study.
# @FACTS@

# @SITE_SETUP@
program=$(@TRIREME@ version | sed -n '1p; s/^commit  */commit /p' | paste -sd,)
echo "job $SLURM_JOB_ID ($SLURM_JOB_NAME), nodes $SLURM_JOB_NODELIST, ${program//,/, }"
exec srun -K1 --mpi=@MPI@ --cpus-per-task=@CPUS_PER_TASK@ @SRUN_OPTIONS@ @TRIREME@ scale --point @RUN_FOLDER@
)";

constexpr std::int64_t kTriadMib = 256;  // what measuring memory takes per rank, with a margin

std::string script_of(const ScaleLaunch& launch, const scaling::StudyFolder& study,
                      const scaling::StudyPlan& plan, const scaling::Point& point) {
  const std::string folder = study.folder_of(point);
  const Config config = scaling::config_of(plan, point, folder);
  JobRequest request;
  request.nodes = point.nodes;
  request.tasks_per_node = plan.ranks_per_node;
  request.cpus_per_task = launch.cpus_per_rank;
  request.time = launch.time;
  const std::size_t key = std::hash<std::string>()(study.path()) % 0x1000000;
  request.name = fmt::format("trireme-scale-{:06x}", key);
  request.log = "";  // in which a % of the folder stands for itself
  for (const char c : folder + "/log") *request.log += c == '%' ? "%%" : std::string(1, c);
  check_job_keys(request);
  const JobTemplate job_template{"scale", kTemplate};
  JobPlan job = plan_job(job_template, config, request, launch.limits(), facts_to_check);
  job.memory_mib += kTriadMib * plan.ranks_per_node;
  if (launch.site.memory) job.memory_mib = std::min(job.memory_mib, *launch.site.memory);
  return job_script(job_template, config, request, launch.site, job, {launch.program, ""});
}

std::string submit(const std::string& script, const std::string& folder) {
  std::string job = one_line(submit_script(script, {"--parsable"}, "--launcher sbatch").output);
  job = job.substr(0, job.find(';'));  // in a federation the cluster's name follows
  write_whole_file(folder + "/job", job + "\n");
  return job;
}

// Whether a job is queued or running. If the controller does not answer, the job counts as queued.
bool in_queue(const std::string& job) {
  const auto done = run_program({"squeue", "-h", "-j", job, "-o", "%T"}, "", {.seconds = 60});
  if (!done) {
    throw ConfigError(fmt::format(
        "--launcher sbatch: there is no squeue in the PATH, which tells whether job {} is queued",
        job));
  }
  if (done->status != 0) return done->errors.find("Invalid job id") == std::string::npos;
  return !done->output.empty();
}

std::string job_of(const std::string& folder) {
  const std::string path = folder + "/job";
  if (!look_ahead(path, ExitStatus::kRunFolder).is_there()) return "";
  return one_line(read_if_there(path, ExitStatus::kRunFolder).value_or(""));
}

}  // namespace

bool run_as_jobs(const ScaleLaunch& launch, const scaling::StudyFolder& study,
                 const scaling::StudyPlan& plan, const std::vector<scaling::Point>& points) {
  StudySignals signals;
  for (const scaling::Point& point : points) {
    if (!study.results_of(point).empty()) continue;
    const std::string folder = study.folder_of(point);
    const std::string before = job_of(folder);
    if (!before.empty() && in_queue(before)) continue;  // an earlier start's job still exists
    study.begin(point);
    print_line(fmt::format("{}: job {}", point.name(),
                           submit(script_of(launch, study, plan, point), folder)));
  }
  std::size_t number = 0;
  for (const scaling::Point& point : points) {
    ++number;
    bool waited = false;
    for (int absent = 0; study.results_of(point).empty();) {
      if (signals.arrived()) return false;
      waited = true;
      // A file may become visible here later than on the node that wrote it.
      absent = in_queue(job_of(study.folder_of(point))) ? 0 : absent + 1;
      if (absent > 3) {
        study.report(points);
        throw_failed(study, point, static_cast<int>(ExitStatus::kInternal));
      }
      signals.wait(1.0);
    }
    if (!waited) continue;
    study.report(points);
    print_line(progress_line(number, points.size(), study.results_of(point).front()));
  }
  return true;
}

}  // namespace trireme::cli
