// The communicator of one rank. An operation on host tensors is done when its call returns; an
// operation on tensors of any device is queued on `ready`.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"

namespace trireme {

// `lane` as in Communicator::lane_id. With `host_only` a tensor of a device is an InternalError, as
// it is where there are several ranks.
std::unique_ptr<Communicator> make_self_communicator(GroupLabel label, int world_rank, int lane,
                                                     bool host_only = false);

}  // namespace trireme
