// Communicators over MPI, carried by the progress engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/comm/communicator.h"

#include "device_staging.h"
#include "mpi_util.h"
#include "progress_engine.h"

namespace trireme {

// What the communicators of a runtime share. Outlives them.
struct CommServices {
  ProgressEngine& engine;
  Allocator& workspace;
  const AlgorithmTable& algorithms;
  bool synchronous_sends;
  // Carries tensors of a device, from the moment on that it is there.
  const std::shared_ptr<DeviceStaging>* staging = nullptr;
};

// `traffic` is of the group whose world ranks `members` lists in order; rank `rank` of it is this
// one.
std::unique_ptr<Communicator> make_mpi_communicator(const CommServices& services, std::string name,
                                                    std::vector<int> members, int rank, int lane,
                                                    OwnedComm traffic);

}  // namespace trireme
