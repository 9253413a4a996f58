// What makes communicators carry tensors of a GPU.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/captured_communication.h"
#include "trireme/comm/communicator.h"
#include "trireme/tensor/cuda.h"

#include "progress_engine.h"

namespace trireme {

class DeviceCarrier {
 public:
  virtual ~DeviceCarrier() = default;

  // A communicator of the same ranks that gives tensors of the GPU to NCCL and the rest to `host`,
  // which it owns; references to `host` stay good for what is on the host. `lane` is the number
  // under which the recorder keeps what happens on the GPU. Collective over the members.
  virtual std::unique_ptr<Communicator> extend(std::unique_ptr<Communicator> host, int lane) = 0;

  // As Runtime::capture.
  virtual std::unique_ptr<CapturedCommunication> capture(const Stream& stream,
                                                         const std::int64_t* number) = 0;

  // Bounds what the host itself waits for; the watchdog bounds the rest.
  virtual void set_timeout(double seconds) = 0;
  // What NCCL has found out since; throws it. The run may not end well with that.
  virtual void check() = 0;
  // At the end of a run that went well, collective over all ranks: ends what is still open.
  virtual void close() noexcept = 0;
  // Ends everything, also kernels that wait for a peer that does not come. From any thread, with no
  // other rank.
  virtual void abort() noexcept = 0;
};

struct DeviceCarrierParts {
  std::shared_ptr<cuda::Runtime> cuda;
  int device = 0;
  ProgressEngine* engine = nullptr;  // outlives the carrier
  FlightRecorder* recorder = nullptr;
  double timeout_s = 600.0;
  // Told of the first fault, at once, by the thread that found it. That thread may be the engine's,
  // and the main thread may wait in MPI for ever. Empty: nobody is.
  std::function<void(std::exception_ptr)> on_fault = nullptr;
};

// NCCL. Collective over `world`, with the names of its ranks' hosts. Throws alike on all ranks:
// ConfigError where two ranks have the same GPU, NcclError where NCCL is missing or too old on one,
// or not the same on all.
std::unique_ptr<DeviceCarrier> make_nccl_carrier(const DeviceCarrierParts& parts,
                                                 Communicator& world,
                                                 const std::vector<std::string>& hosts);

}  // namespace trireme
