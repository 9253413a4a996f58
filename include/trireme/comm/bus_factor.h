// The unit in which collectives of different kinds can be compared with a link's rate.
#pragma once

#include "trireme/comm/algorithms.h"

namespace trireme {

// Returns bus bandwidth over algorithm bandwidth, as nccl-tests defines them: the bytes that cross
// each rank's link with an optimal algorithm over the bytes of the operation. An exchange is a
// ring: each rank sends to the next and receives from the one before.
double bus_factor(Collective op, int ranks);

}  // namespace trireme
