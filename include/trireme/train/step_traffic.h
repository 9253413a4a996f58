// How much a training step sends along each dimension of the grid.
#pragma once

#include "trireme/comm/flight_recorder.h"
#include "trireme/config/config.h"
#include "trireme/models/gpt.h"
#include "trireme/topology/rank_order.h"

namespace trireme {

// Returns the estimate: for each dimension that of the rank that sends most. With the sizes of
// estimate_memory, m the micro-batches of a replica and n the layers of a stage:
//   data      4 bytes (comm.reduce bf16: 2) for each parameter of the rank that needs most memory
//   pipeline  m s R' C
//   tensor    m s R C (4 n, plus 1 each on the first and the last stage), and 12 m R for the loss
//   ends      4 V' C where embedding and head are tied and on different stages
// Dimensions of size 1 have no traffic.
GridTraffic estimate_traffic(const Config& config, const models::GptConfig& model,
                             const GridShape& grid);

// Returns what this rank's flight recorder counted during one step, in the same terms: the sums of
// each dimension's communicator, and what was sent to the one neighbouring stage that got most. A
// gather or scatter counts as half a sum.
GridTraffic traffic_of(const Trace& trace);

}  // namespace trireme
