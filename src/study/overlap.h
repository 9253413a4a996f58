// How computation and communication slow each other where they share the cores of a node.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/ops/context.h"

namespace trireme::bench {

// Speeds while both are under way, as parts of what they are alone.
struct Overlap {
  double computation = 1.0;
  double communication = 1.0;  // of an all-reduce of what caches hold, as `topo probe` measures it
};

// Collective over the communicator, whose ranks are on one node and compute on a CPU. Medians of a
// few rounds; takes about two seconds.
Overlap measure_overlap(Communicator& comm, ops::Context& ctx);

}  // namespace trireme::bench
