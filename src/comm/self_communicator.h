// The communicator of one rank: on tensors of the host every operation is done when its call
// returns; on those of a device, of any, it is queued on `ready`.
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

// `lane` as in Communicator::lane_id.
std::unique_ptr<Communicator> make_self_communicator(std::string name, int world_rank, int lane);

}  // namespace trireme
