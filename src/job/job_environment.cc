#include "job/job_environment.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace trireme {
namespace {

struct OptionVariables {
  std::string_view option;     // of sbatch, with which the variables are the job's own; empty: none
  std::string_view variables;  // as words of `unset`
};

constexpr OptionVariables kOptionVariables[] = {
    // SBATCH_EXPORT=NONE: the steps would lack what the script exports.
    {"", "SLURM_EXPORT_ENV SRUN_EXPORT_ENV SRUN_CPUS_PER_TASK SLURM_HOSTFILE"},
    {"", "SLURM_JOB_START_TIME SLURM_JOB_END_TIME"},  // squeue tells those of this job
    {"", "\"${!SLURM_CPU_BIND@}\" SLURM_STEP_GRES SLURM_GRES SLURM_TIMELIMIT SLURM_DEPENDENCY"},
    {"--mem", "SLURM_MEM_PER_NODE"},
    {"--mem-per-cpu", "SLURM_MEM_PER_CPU"},
    {"--mem-per-gpu", "SLURM_MEM_PER_GPU"},
    {"--mem-bind", "\"${!SLURM_MEM_BIND@}\""},
    {"--gpu-bind", "SLURM_GPU_BIND"},
    {"--tres-bind", "SLURM_TRES_BIND"},
    {"--tres-per-task", "SLURM_TRES_PER_TASK"},
    {"--gpus", "SLURM_GPUS"},
    {"--gpus-per-node", "SLURM_GPUS_PER_NODE"},
    {"--gpus-per-socket", "SLURM_GPUS_PER_SOCKET"},
    {"--gpus-per-task", "SLURM_GPUS_PER_TASK"},
    {"--gpu-freq", "SLURM_GPU_FREQ"},
    {"--cpus-per-gpu", "SLURM_CPUS_PER_GPU"},
    {"--ntasks-per-gpu", "SLURM_NTASKS_PER_GPU"},
    {"--ntasks-per-node", "SLURM_NTASKS_PER_NODE"},
    {"--ntasks-per-core", "SLURM_NTASKS_PER_CORE"},
    {"--ntasks-per-socket", "SLURM_NTASKS_PER_SOCKET"},
    {"--threads-per-core", "SLURM_THREADS_PER_CORE"},
    {"--hint", "SLURM_HINT"},
    {"--distribution", "SLURM_DISTRIBUTION SLURM_DIST_PLANESIZE"},
    {"--core-spec", "SLURM_CORE_SPEC"},
    {"--thread-spec", "SLURM_THREAD_SPEC"},
    {"--cpu-freq", "SLURM_CPU_FREQ_REQ"},
    {"--exclusive", "SLURM_EXCLUSIVE"},
    {"--overcommit", "SLURM_OVERCOMMIT"},
    {"--constraint", "SLURM_CONSTRAINT"},
    {"--reservation", "SLURM_RESERVATION"},
    {"--network", "SLURM_NETWORK"},
};

}  // namespace

std::string remove_foreign_options(const std::vector<std::string>& options) {
  const auto asked = [&](std::string_view option) {
    return std::any_of(options.begin(), options.end(), [&](const std::string& own) {
      return std::string_view(own).substr(0, own.find('=')) == option;
    });
  };
  std::string lines =
      "# What another allocation, or a profile, has left for srun: sbatch passes it on.\n";
  std::string line = "unset";
  for (const OptionVariables& each : kOptionVariables) {
    if (!each.option.empty() && asked(each.option)) continue;
    if (line.size() + each.variables.size() > 100) {
      lines += line + "\n";
      line = "unset";
    }
    line += fmt::format(" {}", each.variables);
  }
  // The folder of temporary files may have been that of a job, too.
  return lines + line + "\n[[ -d ${TMPDIR:-/tmp} ]] || unset TMPDIR\n";
}

}  // namespace trireme
