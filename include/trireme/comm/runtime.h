// The process's place in the job: owns MPI from start to end, the communication thread, the flight
// recorder and the watchdog, and ends the process with the status that the run earned.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/base/exit_status.h"
#include "trireme/comm/algorithms.h"
#include "trireme/comm/captured_communication.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/tensor/cuda.h"

namespace trireme {

// What carries tensors of a GPU between ranks: NCCL, or MPI by way of pinned memory of the host.
enum class DeviceBackend { kMpi, kNccl };

struct RuntimeOptions {
  // Seconds that an operation may be under way before the watchdog asks who is missing.
  double timeout_s = 600.0;
  AlgorithmTable algorithms;
  // Test mode: point-to-point messages are rendezvous (synchronous) sends only.
  bool synchronous_sends = false;
};

// Built once, in main, before anything else; destroyed last. No collective runs in its destructor.
class Runtime {
 public:
  // Collective over all processes that the launcher started. Throws MpiError where MPI cannot give
  // MPI_THREAD_MULTIPLE, ConfigError where the launcher started several tasks but MPI sees one.
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Communicator& world();
  int rank() const;
  int size() const;
  int node() const;  // index of this node, in order of each node's lowest rank
  int nodes() const;
  int local_rank() const;  // among the ranks of this node
  int local_size() const;
  const std::string& host() const;
  FlightRecorder& recorder();

  // What the start took, in seconds: from the process's start until here, MPI's own, the world of
  // ranks.
  struct Startup {
    double program = 0.0, mpi = 0.0, world = 0.0;
  };
  const Startup& startup() const;

  // Cores that this rank may use: what Slurm or the affinity mask grants, divided among the ranks
  // of the node whose masks overlap; at least 1.
  int cores() const;

  void set_timeout(double seconds);

  // From now on the world and the communicators that group() makes carry tensors of this GPU, by
  // `backend`, as well as those of the host. Collective over all ranks, once, before any such
  // group. Throws CudaError, ConfigError.
  void use_device(std::shared_ptr<cuda::Runtime> cuda, int device, DeviceBackend backend);

  // Why a GPU's work with communication in it cannot be captured; empty where it can. The same on
  // all ranks.
  std::string why_no_capture() const;
  // Communication is captured from now on, with what the caller captures on `stream`, until its
  // join(). `number` is the device's, and greater in each replay. Collective over all ranks, whose
  // captures hold the same operations.
  std::unique_ptr<CapturedCommunication> capture(const Stream& stream, const std::int64_t* number);

  // Made by whoever owns streams and allocators of the device, after them, so that it ends first,
  // when no operation holds memory of theirs any more: it waits until all are done. Where a fault
  // ends it, it drops them instead, and no stream waits for another rank any more, so that what
  // waits for the device on the way out comes to its end.
  class DeviceUse {
   public:
    explicit DeviceUse(Runtime& runtime);
    ~DeviceUse();
    DeviceUse(const DeviceUse&) = delete;
    DeviceUse& operator=(const DeviceUse&) = delete;

   private:
    Runtime& runtime_;
    const int exceptions_;  // that were under way before
  };

  // A communicator of the listed world ranks; ranks count in the listed order. Collective over the
  // listed ranks alone; `name` and `ranks` are the same on all of them.
  std::unique_ptr<Communicator> group(const std::string& name, const std::vector<int>& ranks);

  // Runs `body` and ends the process with what it returns; never returns itself. Where body throws:
  // the same fault on all ranks is one line from the lowest rank and an orderly end; a fault on
  // some ranks alone is a line from each distinct one, then an abort of the whole job, with the
  // status of the fault.
  [[noreturn]] void run(const std::function<ExitStatus()>& body);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
