// Networks of simulated ranks.
#pragma once

#include <vector>

#include <fmt/format.h>

#include "trireme/topology/network.h"

namespace trireme::testing {

// One rank on each host of a tree, along the leaves.
inline TreeNetwork on_each_host(int hosts, const std::vector<FatTreeLevel>& levels,
                                double bytes_per_second) {
  const Fabric fabric = make_fat_tree(levels, bytes_per_second);
  std::vector<int> host_of;
  for (int i = 0; i < hosts; ++i) host_of.push_back(*fabric.host(fmt::format("host{}", i)));
  return TreeNetwork(fabric, host_of, {});
}

inline TreeNetwork one_switch(int ranks, double bytes_per_second = 1e9) {
  return on_each_host(ranks, {{ranks, 0.0}}, bytes_per_second);
}

}  // namespace trireme::testing
