#include "trireme/comm/launcher.h"

#include <atomic>
#include <cstdlib>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"

namespace trireme {
namespace {

std::atomic<bool> by_host = false;

int number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

// The innermost launcher decides. srun speaks PMI, too: its tasks have the number and the size of
// their step. An mpiexec inside a step sets PMI_SIZE as well, and says which of its node's ranks
// each one is. SLURM_NTASKS alone proves nothing, because the batch script itself has it too.
LaunchedTasks launched_tasks() {
  if (const int count = number("PMI_SIZE"); count > 0) {
    const int index = number("PMI_RANK");
    const bool by_srun = std::getenv("SLURM_PROCID") != nullptr &&
                         std::getenv("MPI_LOCALRANKID") == nullptr &&
                         number("SLURM_STEP_NUM_TASKS") == count && number("SLURM_PROCID") == index;
    return {count, index, by_srun ? "srun" : "mpiexec"};
  }
  if (const int count = number("OMPI_COMM_WORLD_SIZE"); count > 0) {
    return {count, number("OMPI_COMM_WORLD_RANK"), "Open MPI's mpiexec"};
  }
  if (std::getenv("SLURM_PROCID") != nullptr) {
    if (const int count = number("SLURM_STEP_NUM_TASKS"); count > 0)
      return {count, number("SLURM_PROCID"), "srun"};
    if (const int count = number("SLURM_NTASKS");
        count > 0 && std::getenv("SLURM_STEP_ID") != nullptr) {
      return {count, number("SLURM_PROCID"), "srun"};
    }
  }
  return {};
}

void check_world_size(int world_size) {
  const LaunchedTasks tasks = launched_tasks();
  if (world_size > 1 || tasks.count <= 1) return;
  throw ConfigError(fmt::format(
      "{} started {} tasks, but MPI sees only 1: start them with srun --mpi=pmi2, or with the "
      "mpiexec of MPICH",
      tasks.launcher, tasks.count));
}

std::string node_name() {
  const char* name = by_host ? nullptr : std::getenv("SLURMD_NODENAME");
  return name != nullptr && *name != '\0' ? name : host_name();
}

void call_node_by_host() {
  by_host = true;
}

}  // namespace trireme
