// The findings of doctor about a node, except its GPUs.
#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/text.h"

#include "doctor/doctor_checks.h"

namespace trireme::doctor {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / kGiB;
}

void check_launch(const NodeFacts& facts, std::vector<Finding>& findings) {
  const LaunchedTasks& launched = facts.launched;
  if (launched.launcher.empty()) {
    findings.push_back({Verdict::kOk, "launch", facts.mpi + "; started alone", ""});
  } else if (launched.count > 1 && !facts.process_manager) {
    findings.push_back({Verdict::kProblem, "launch",
                        fmt::format("{} started {} tasks, but none can find the others through MPI",
                                    launched.launcher, launched.count),
                        "use srun --mpi=pmi2, or the mpiexec of MPICH"});
  } else {
    findings.push_back(
        {Verdict::kOk, "launch",
         fmt::format("{}; {} tasks by {}", facts.mpi, launched.count, launched.launcher), ""});
  }
}

void check_files(const NodeFacts& facts, std::vector<Finding>& findings) {
  findings.push_back(
      {Verdict::kOk, "HDF5",
       facts.hdf5 +
           (facts.hdf5_thread_safe ? ", thread-safe" : ", one call at a time by our own lock"),
       ""});
  if (facts.open_files < 1024) {
    findings.push_back({Verdict::kWarning, "open files",
                        fmt::format("a process may open {}", facts.open_files),
                        "raise the limit: ulimit -n 4096"});
  }
}

void check_processors(const NodeFacts& facts, std::vector<Finding>& findings) {
  const std::size_t own = facts.own_cpus.size();
  const std::string quota =
      facts.processor_quota
          ? fmt::format(", the control group's quota is {:g}", *facts.processor_quota)
          : "";
  const std::string what = fmt::format("{} of {} for this process{}, {}", own,
                                       facts.online_cpus.size(), quota, facts.instructions);
  if (own <= 1 && facts.online_cpus.size() > 1) {
    findings.push_back({Verdict::kWarning, "processors", what,
                        "ask Slurm for more with --cpus-per-task, or see that nothing binds it"});
  } else if (facts.instructions == "baseline") {
    findings.push_back({Verdict::kWarning, "processors", what,
                        "training is several times slower without AVX2: take other nodes, or unset "
                        "TRIREME_ISA"});
  } else {
    findings.push_back({Verdict::kOk, "processors", what, ""});
  }
}

void check_memory(const NodeFacts& facts, std::vector<Finding>& findings) {
  const std::string available = fmt::format("{:.1f}", gib(facts.memory_available));
  std::string what = fmt::format("{} of {:.1f} GiB available", available, gib(facts.memory));
  std::int64_t usable = facts.memory_available;
  if (facts.memory_limit) {
    what += fmt::format(", the control group's limit is {}",
                        size_text(static_cast<std::uint64_t>(*facts.memory_limit)));
    usable = std::min(usable, *facts.memory_limit);
  }
  const bool little = usable < 1024 * kMiB;
  findings.push_back({little ? Verdict::kWarning : Verdict::kOk, "memory", what,
                      little ? "ask Slurm for more with --mem, or take another node" : "",
                      available});
  if (facts.shared_memory < 64 * kMiB + 1) {
    findings.push_back({Verdict::kWarning, "shared memory",
                        facts.shared_memory == 0
                            ? "there is no /dev/shm"
                            : fmt::format("/dev/shm has {} MiB", facts.shared_memory / kMiB),
                        "ranks of a node talk through it: give it 1 GiB (in a container --shm-size "
                        "or --ipc=host)"});
  }
}

void check_network(const NodeFacts& facts, std::vector<Finding>& findings) {
  if (facts.rdma_devices.empty()) {
    findings.push_back({Verdict::kNotHere, "RDMA network", "no InfiniBand or RoCE device", ""});
    return;
  }
  const std::string what = fmt::format("{}", fmt::join(facts.rdma_devices, ", "));
  if (facts.lockable_memory) {
    findings.push_back(
        {Verdict::kWarning, "RDMA network",
         fmt::format("{}, but a process may lock only {} MiB", what, *facts.lockable_memory / kMiB),
         "set ulimit -l unlimited (Slurm: PropagateResourceLimitsExcept=MEMLOCK)"});
    return;
  }
  findings.push_back({Verdict::kOk, "RDMA network", what, ""});
}

}  // namespace

void check_node(const NodeFacts& facts, std::vector<Finding>& findings) {
  check_launch(facts, findings);
  check_files(facts, findings);
  check_processors(facts, findings);
  check_memory(facts, findings);
  check_network(facts, findings);
}

}  // namespace trireme::doctor
