// What the launcher's environment says of the job.
#pragma once

#include <string>

namespace trireme {

struct LaunchedTasks {
  int count = 1;         // how many processes the launcher started together with this one
  int index = 0;         // which of them this one is
  std::string launcher;  // "srun", ...; empty where there is none
};

// From the environment of Slurm, PMI and Open MPI, so before MPI has started.
LaunchedTasks launched_tasks();

// Throws ConfigError where the launcher started several tasks but MPI sees a world of one rank.
void check_world_size(int world_size);

// What the user calls this node: Slurm's name for it, else the host's.
std::string node_name();

}  // namespace trireme
