// Hands scripts to sbatch.
#pragma once

#include <string>
#include <vector>

#include "cli/subprocess.h"

namespace trireme::cli {

// Returns "sbatch" with the options of a script's #SBATCH lines as arguments: sbatch takes SBATCH_*
// of the environment before the lines of a script, and arguments before both.
std::vector<std::string> sbatch_command(const std::string& script);

// Hands a script to sbatch, with its lines as arguments and `more` before them. From inside of an
// allocation nothing of that one's job is passed on (SLURM_*, what launchers set). Returns what
// sbatch printed. Throws ConfigError where there is no sbatch, and in its words where it refuses
// the job. `flag` asked for it: "--submit".
Finished submit_script(const std::string& script, const std::vector<std::string>& more,
                       const std::string& flag);

// Whether a variable of the environment, "NAME=value", is no matter of the allocation or step in
// which this process runs.
bool is_of_no_job(std::string_view variable);

}  // namespace trireme::cli
