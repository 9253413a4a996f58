// A small network, and what collectives of the data dimension cost on it.
#pragma once

#include <cstddef>
#include <string_view>

#include "trireme/plan/network_costs.h"

namespace trireme::plan {

inline constexpr double kRate = 2e9, kLatency = 3e-6, kPosting = 2e-7;
inline constexpr std::size_t kLong = std::size_t{64} << 20;

// One adapter for each node, which one message can fill.
inline NetworkDescription network_of(int ranks_of_node, bool nccl = false) {
  NetworkDescription network;
  network.name = "test";
  network.ranks_of_node = ranks_of_node;
  network.rates = {.distances = {{.latency = 5e-7, .flow = 5e9, .host = 20e9},
                                 {.latency = kLatency, .flow = kRate, .host = kRate}},
                   .costs = {.message = kPosting}};
  network.nccl = nccl;
  network.constants = {.efficiency = 1.0, .latency = 1.0, .start = 0.0};
  return network;
}

inline double total(const CommunicationCost& cost) {
  return cost.latency + cost.flow;
}

inline GroupLabel data_label() {
  return {"data", kDataAxes, Purpose::kGradients};
}
inline CommunicationCost data_cost(NetworkCosts& costs, const GridShape& grid,
                                   std::string_view operation = "all_reduce",
                                   std::size_t bytes = kLong) {
  return costs.cost(operation, data_label(), grid.group(0, kDataAxes), bytes);
}
inline CommunicationCost data_cost(const NetworkDescription& network, const GridShape& grid,
                                   std::string_view operation = "all_reduce",
                                   std::size_t bytes = kLong) {
  NetworkCosts costs(network, grid);
  return data_cost(costs, grid, operation, bytes);
}

}  // namespace trireme::plan
