// Communicators over MPI, carried by the progress engine.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_plan.h"

#include "comm/device/device_staging.h"
#include "comm/mpi/mpi_util.h"
#include "comm/mpi/progress_engine.h"

namespace trireme {

// What the communicators of a runtime share. It outlives them.
struct CommServices {
  ProgressEngine& engine;
  Allocator& workspace;
  bool synchronous_sends;
  // Carries tensors of a device once it is set. Its faults are those of every communicator.
  const std::shared_ptr<DeviceStaging>* staging = nullptr;
  bool host_only = false;  // a tensor of a device is an InternalError all the same
};

// `traffic` is the MPI communicator of the group. `members` lists the group's world ranks in order;
// this rank is number `rank` in it. The plan may change until it is used: what begins later follows
// it. It must be the same on all ranks whenever they begin an operation.
std::unique_ptr<Communicator> make_mpi_communicator(const CommServices& services, GroupLabel label,
                                                    std::vector<int> members, int rank, int lane,
                                                    OwnedComm traffic,
                                                    std::shared_ptr<const CommunicatorPlan> plan);

}  // namespace trireme
