// What the launcher's environment says about the job.
#pragma once

#include <string>

namespace trireme {

struct LaunchedTasks {
  int count = 1;         // how many processes the launcher started, this one included
  int index = 0;         // the index of this process among them
  std::string launcher;  // "srun", ...; empty if there is none
};

// Read from the environment variables of Slurm, PMI and Open MPI, so it works before MPI has
// started.
LaunchedTasks launched_tasks();

// Throws ConfigError if the launcher started several tasks but MPI sees a world of one rank.
void check_world_size(int world_size);

// The name by which the user knows this node: Slurm's name for it, or else host_name().
std::string node_name();
// From now on node_name() is the host name: Slurm's name is that of another node.
void call_node_by_host();

}  // namespace trireme
