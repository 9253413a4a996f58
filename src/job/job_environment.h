// What a job's script does with the environment that sbatch has passed on.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Returns lines of shell that remove the variables which srun would take for options, but which no
// option of this job has set: an allocation in which sbatch was called has them of its own, and so
// may a login profile. `options` are those of the job's #SBATCH lines.
std::string remove_foreign_options(const std::vector<std::string>& options);

}  // namespace trireme
