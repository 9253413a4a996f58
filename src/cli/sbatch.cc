#include "cli/sbatch.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/job/job_script.h"

namespace trireme::cli {
namespace {

// What tells Slurm's commands where and how to reach the controller, and how to print.
constexpr std::array<std::string_view, 6> kOfCommands = {"SLURM_CONF",        "SLURM_CONF_SERVER",
                                                         "SLURM_CLUSTERS",    "SLURM_JWT",
                                                         "SLURM_TIME_FORMAT", "SLURM_DEBUG_FLAGS"};

}  // namespace

bool is_of_no_job(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  if (std::find(kOfCommands.begin(), kOfCommands.end(), name) != kOfCommands.end()) return true;
  // The name that a job's script gave itself; one that a user has chosen is for the new job, too.
  const bool chosen = environment("TRIREME_JOB") != environment("TRIREME_JOB_SET");
  if (name == "TRIREME_JOB") return chosen;
  constexpr std::array<std::string_view, 9> kOfJobs = {
      "SLURM_",    "SLURMD_",      "SRUN_",
      "PMI_",      "PMIX_",        "PMI2_",
      "MPI_LOCAL", "TRIREME_JOB_", "CUDA_VISIBLE_DEVICES"};
  return std::none_of(kOfJobs.begin(), kOfJobs.end(),
                      [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> sbatch_command(const std::string& script) {
  std::vector<std::string> command = sbatch_options(script);
  command.insert(command.begin(), "sbatch");
  return command;
}

Finished submit_script(const std::string& script, const std::vector<std::string>& more,
                       const std::string& flag) {
  std::vector<std::string> command = sbatch_command(script);
  command.insert(command.begin() + 1, more.begin(), more.end());
  ProgramTerms terms;
  if (!environment("SLURM_JOB_ID").empty()) terms.passes_on = is_of_no_job;
  const auto done = run_program(command, script, terms);
  if (!done) throw ConfigError(fmt::format("{}: there is no sbatch in the PATH", flag));
  if (done->status != 0) {
    throw ConfigError(fmt::format("sbatch refused the job: {}", one_line(done->errors)));
  }
  return *done;
}

}  // namespace trireme::cli
