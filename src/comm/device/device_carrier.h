// Extends communicators so that they carry tensors of a GPU.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/captured_communication.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/nccl_tuning.h"
#include "trireme/tensor/cuda.h"

#include "comm/mpi/progress_engine.h"

namespace trireme {

class DeviceCarrier {
 public:
  virtual ~DeviceCarrier() = default;

  // Collective over the members. Returns a communicator of the same ranks that gives tensors of the
  // GPU to NCCL and all others to `host`, which it owns. References to `host` stay valid for
  // communication of host tensors. The recorder keeps operations on the GPU under the number
  // `lane`.
  virtual std::unique_ptr<Communicator> extend(std::unique_ptr<Communicator> host, int lane) = 0;

  // Returns a communicator of the same ranks for tensors of the host alone, which owns `host`. It
  // reports NCCL's faults and keeps the order of NCCL and MPI (nccl/order_guard.h), as the host
  // side of extend() does, but NCCL knows nothing of it.
  virtual std::unique_ptr<Communicator> guard(std::unique_ptr<Communicator> host) = 0;

  // See Runtime::capture.
  virtual std::unique_ptr<CapturedCommunication> capture(const Stream& stream,
                                                         const std::int64_t* number) = 0;

  // Sets the limit for the host's own waits; the watchdog limits all others.
  virtual void set_timeout(double seconds) = 0;
  // Throws the first fault that NCCL has found, if there is one. With such a fault the run may not
  // end as a success.
  virtual void check() = 0;
  // Collective over all ranks, at the end of a successful run: closes everything that is still
  // open.
  virtual void close() noexcept = 0;
  // Ends everything, including kernels that wait for a peer that does not come. May be called from
  // any thread, without any other rank.
  virtual void abort() noexcept = 0;
};

struct DeviceCarrierParts {
  std::shared_ptr<cuda::Runtime> cuda;
  int device = 0;
  ProgressEngine* engine = nullptr;  // outlives the carrier
  FlightRecorder* recorder = nullptr;
  double timeout_s = 600.0;
  // Called with the first fault, at once, by the thread that found it. That thread may be the
  // engine's, while the main thread may wait in MPI for ever. May be empty.
  std::function<void(std::exception_ptr)> on_fault = nullptr;
  NcclTuning tuning = {};
};

// Makes the carrier of NCCL. Collective over `world`; `hosts` has the host names of its ranks.
// Throws the same on all ranks: ConfigError if two ranks have the same GPU, the environment turns
// NCCL's launch order off, or NCCL lacks a field of the tuning; NcclError if NCCL is missing or too
// old on one rank, or not the same on all.
std::unique_ptr<DeviceCarrier> make_nccl_carrier(const DeviceCarrierParts& parts,
                                                 Communicator& world,
                                                 const std::vector<std::string>& hosts);

}  // namespace trireme
