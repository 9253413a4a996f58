// The process's place in the job. It owns MPI from start to end, the communication thread, the
// flight recorder and the watchdog, and it ends the process with the exit status of the run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/exit_status.h"
#include "trireme/base/running_clock.h"
#include "trireme/comm/communicator_plan.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/comm/nccl_tuning.h"
#include "trireme/comm/rank_runtime.h"
#include "trireme/tensor/cuda.h"

namespace trireme {

// The backend that carries GPU tensors between ranks: NCCL, or MPI by way of pinned host memory.
enum class DeviceBackend { kMpi, kNccl };

// What the ranks of a job must have in common from the first.
struct ProgramCall {
  std::string commit;                  // of the program
  std::vector<std::string> arguments;  // as written
};

struct RuntimeOptions {
  ProgramCall call;  // compared between the ranks; a difference ends the job by a line, with kUsage
  // Seconds that an operation may be in flight before the watchdog asks which ranks are missing.
  double timeout_s = 600.0;
  AlgorithmTable algorithms;
  // Test mode: point-to-point messages are rendezvous (synchronous) sends only.
  bool synchronous_sends = false;
};

// Built once, in main, before anything else; destroyed last. No collective runs in its destructor.
class Runtime final : public RankRuntime {
 public:
  // Collective over all processes that the launcher started. Throws MpiError if MPI cannot give
  // MPI_THREAD_MULTIPLE, and ConfigError if the launcher started several tasks but MPI sees one.
  // Ends the process with kHangOrLostRank if MPI has not started after TRIREME_MPI_INIT_LIMIT
  // seconds (300).
  explicit Runtime(RuntimeOptions options);
  Runtime();
  ~Runtime() override;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Communicator& world() override;
  int rank() const override;
  int size() const override;
  int node() const override;
  int nodes() const override;
  int local_rank() const override;
  int local_size() const override;
  const std::string& host() const override;
  const std::vector<std::string>& hosts() const;  // of each rank, as the launcher names its node
  FlightRecorder& recorder() override;

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
  // Time in which this process ran; the timeout is in this time.
  RunningClock& clock();

  // Collective over all ranks; call it once, before any group() that shall carry GPU tensors. From
  // then on the communicators that group() makes carry tensors of this GPU by `backend`, as well as
  // tensors of the host. NCCL follows `tuning`, which is the same on all ranks. Throws CudaError,
  // ConfigError, NcclError.
  void use_device(std::shared_ptr<cuda::Runtime> cuda, int device, DeviceBackend backend,
                  const NcclTuning& tuning = {});

  std::string why_no_capture() const override;
  std::unique_ptr<CapturedCommunication> capture(const Stream& stream,
                                                 const std::int64_t* number) override;

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

  std::unique_ptr<Communicator> group(const GroupLabel& label,
                                      const std::vector<int>& ranks) override;
  std::unique_ptr<Communicator> host_group(const GroupLabel& label,
                                           const std::vector<int>& ranks) override;

  // Collective in effect: call it on all ranks or on none. The table of communicators that are made
  // from now on, where no planner decides.
  void use_algorithms(AlgorithmTable algorithms);
  // Call it on all ranks or on none. group() and host_group() then ask `planner` for the plan of
  // each communicator of several ranks, on its first rank alone, and send it to the others. What
  // the planner throws, they throw on all ranks of the communicator. Without a planner, a
  // communicator has the table of RuntimeOptions or use_algorithms() and blocks of one tier: the
  // nodes.
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
