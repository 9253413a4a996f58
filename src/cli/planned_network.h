// The network that a plan is for, by a name or by files that describe it.
#pragma once

#include <string>

#include "trireme/plan/device_description.h"
#include "trireme/plan/network_costs.h"

namespace trireme::cli {

// `name`: one that src/plan/README.md lists, or files as comm.network takes them: rates, which
// trireme topo probe has written, a fabric, or both; empty: what is usual for the device. Throws
// ConfigError for others, and for files that tell no rate.
plan::NetworkDescription planned_network(const std::string& name,
                                         const plan::DeviceDescription& device, int ranks_of_node);

}  // namespace trireme::cli
