// How fast a device computes.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

// Returns the FLOP/s of matrix products in fp32 on the context's device and threads, the fastest of
// three rounds of 0.2 s: as long as two periods of a quota of processors. Waits for a GPU.
double measured_speed(Context& ctx);

}  // namespace trireme::ops
