// The process's place in the job. It owns MPI from start to end, the communication thread, the
// flight recorder and the watchdog, and it ends the process with the exit status of the run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/base/exit_status.h"
#include "trireme/comm/captured_communication.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_plan.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/comm/nccl_tuning.h"
#include "trireme/tensor/cuda.h"

namespace trireme {

// The backend that carries GPU tensors between ranks: NCCL, or MPI by way of pinned host memory.
enum class DeviceBackend { kMpi, kNccl };

struct RuntimeOptions {
  // Seconds that an operation may be in flight before the watchdog asks which ranks are missing.
  double timeout_s = 600.0;
  AlgorithmTable algorithms;
  // Test mode: point-to-point messages are rendezvous (synchronous) sends only.
  bool synchronous_sends = false;
};

// Built once, in main, before anything else; destroyed last. No collective runs in its destructor.
class Runtime {
 public:
  // Collective over all processes that the launcher started. Throws MpiError if MPI cannot give
  // MPI_THREAD_MULTIPLE, and ConfigError if the launcher started several tasks but MPI sees one.
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // All ranks, in the launcher's order. For tensors of the host alone, like host_group().
  Communicator& world();
  int rank() const;
  int size() const;
  int node() const;  // index of this node; nodes are ordered by their lowest rank
  int nodes() const;
  int local_rank() const;  // rank among the ranks of this node
  int local_size() const;
  const std::string& host() const;
  const std::vector<std::string>& hosts() const;  // of each rank, as the launcher names its node
  FlightRecorder& recorder();

  // The duration of the start, in seconds: from the start of the process to this constructor, in
  // MPI's own initialization, and for setting up the world of ranks.
  struct Startup {
    double program = 0.0, mpi = 0.0, world = 0.0;
  };
  const Startup& startup() const;

  // The number of cores that this rank may use: what Slurm or the affinity mask grants, divided
  // among the ranks of the node whose masks overlap; at least 1.
  int cores() const;

  void set_timeout(double seconds);

  // Collective over all ranks; call it once, before any group() that shall carry GPU tensors. From
  // then on the communicators that group() makes carry tensors of this GPU by `backend`, as well as
  // tensors of the host. NCCL follows `tuning`, which is the same on all ranks. Throws CudaError,
  // ConfigError, NcclError.
  void use_device(std::shared_ptr<cuda::Runtime> cuda, int device, DeviceBackend backend,
                  const NcclTuning& tuning = {});

  // Why GPU work that contains communication cannot be captured; empty if it can. The same on all
  // ranks.
  std::string why_no_capture() const;
  // Collective over all ranks, whose captures must hold the same operations. Captures communication
  // from now on, together with what the caller captures on `stream`, until join() of the result.
  // `number` is in device memory and grows with each replay.
  std::unique_ptr<CapturedCommunication> capture(const Stream& stream, const std::int64_t* number);

  // Create one after the streams and allocators of the device, in the scope that owns them, so that
  // it ends before them. Its destructor waits until all operations are done, so that none still
  // holds memory of theirs. If an exception ends it, it drops the operations instead and releases
  // every stream that waits for another rank, so that destructors that wait for the device can
  // finish.
  class DeviceUse {
   public:
    explicit DeviceUse(Runtime& runtime);
    ~DeviceUse();
    DeviceUse(const DeviceUse&) = delete;
    DeviceUse& operator=(const DeviceUse&) = delete;

   private:
    Runtime& runtime_;
    const int exceptions_;  // in flight at construction
  };

  // Collective over the listed ranks alone. Returns a communicator of the listed world ranks, which
  // are numbered in the listed order. `name` and `ranks` must be the same on all of them.
  std::unique_ptr<Communicator> group(const std::string& name, const std::vector<int>& ranks);
  // The same for tensors of the host alone: a tensor of a GPU is an InternalError. It takes no
  // memory and no connections of NCCL.
  std::unique_ptr<Communicator> host_group(const std::string& name, const std::vector<int>& ranks);

  // Call it on all ranks or on none. group() and host_group() then ask `planner` for the plan of
  // each communicator of several ranks, on its first rank alone, and send it to the others. What
  // the planner throws, they throw on all ranks of the communicator. Without a planner, a
  // communicator has the table of RuntimeOptions and blocks of one tier: the nodes.
  void use_planner(CommunicatorPlanner planner);

  struct PlannedCommunicator {
    std::string name;
    std::vector<int> ranks;                  // of the world
    std::shared_ptr<CommunicatorPlan> plan;  // the one that it uses
  };
  // The communicators of several ranks that were made on this rank, the world first.
  const std::vector<PlannedCommunicator>& communicators() const;

  // Runs `body` and ends the process with the status that it returns; never returns. If body throws
  // the same fault on all ranks, the lowest rank prints it as one line and the job ends in good
  // order. If only some ranks have a fault, each distinct fault is printed as one line, and then
  // the whole job is aborted with the status of the fault.
  [[noreturn]] void run(const std::function<ExitStatus()>& body);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
