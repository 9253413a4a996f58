// The closed forms beside a world in virtual time in which the tasks of production run, of all
// groups of a grid at once.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/communicator.h"
#include "trireme/plan/network_costs.h"
#include "trireme/tensor/tensor.h"
#include "trireme/topology/planner.h"
#include "trireme/topology/simulated_ranks.h"

namespace trireme::plan {
namespace {

struct Fabric {
  GridShape grid;
  int ranks_of_node = 1;
  int nodes_of_leaf = 0;
  double taper = 1.0;
};

NetworkDescription describe(const Fabric& fabric) {
  constexpr double kFlow = 1e9, kHost = 2e9;
  NetworkDescription network;
  network.name = "simulated";
  network.ranks_of_node = fabric.ranks_of_node;
  network.nodes_of_leaf = fabric.nodes_of_leaf;
  network.rates = {.distances = {{.latency = 5e-7, .flow = 5e9, .host = 20e9},
                                 {.latency = 2e-6, .flow = kFlow, .host = kHost}},
                   .costs = {.message = 2e-7, .reduced_byte = 1e-10}};
  if (fabric.nodes_of_leaf > 0) {
    network.rates.distances.push_back({.latency = 3e-6,
                                       .flow = kFlow,
                                       .host = kHost,
                                       .block = kHost * fabric.nodes_of_leaf / fabric.taper});
  }
  network.constants = {.efficiency = 1.0, .latency = 1.0, .start = 0.0};
  return network;
}

RankBlocks blocks_of(const Fabric& fabric) {
  std::vector<std::vector<int>> tiers(fabric.nodes_of_leaf > 0 ? 2 : 1);
  for (int rank = 0; rank < fabric.grid.ranks(); ++rank) {
    const int node = rank / fabric.ranks_of_node;
    tiers[0].push_back(node);
    if (fabric.nodes_of_leaf > 0) tiers[1].push_back(node / fabric.nodes_of_leaf);
  }
  return RankBlocks(fabric.grid.ranks(), tiers);
}

// The buffers of a rank, and what it calls.
struct Call {
  explicit Call(std::size_t bytes) : floats(bytes / 4), a(floats + 1), b(floats + 1) {}

  Tensor tensor(std::vector<float>& values, std::size_t length) const {
    return Tensor::wrap(values.data(), {static_cast<std::int64_t>(length)}, DType::kF32);
  }
  void run(Communicator& comm, std::string_view operation) {
    const Stream host;
    const std::size_t part = floats / static_cast<std::size_t>(comm.size());
    const Tensor all = tensor(a, floats), other = tensor(b, floats), own = tensor(b, part);
    if (operation == "all_reduce") comm.all_reduce(host, all, ReduceOp::kSum).wait_host();
    if (operation == "reduce_scatter") {
      comm.reduce_scatter(host, all, own, ReduceOp::kSum).wait_host();
    }
    if (operation == "all_gather") comm.all_gather(host, own, all).wait_host();
    if (operation == "broadcast") comm.broadcast(host, all, 0).wait_host();
    if (operation == "all_to_all") comm.all_to_all(host, all, other).wait_host();
    if (operation == "barrier") comm.barrier().wait_host();
    if (operation == "send") {
      using Direction = Transfer::Direction;
      const bool sends = comm.rank() == 0;
      if (comm.rank() > 1) return;
      comm.exchange(host, {{.direction = sends ? Direction::kSend : Direction::kReceive,
                            .peer = sends ? 1 : 0,
                            .tensor = all}})
          .wait_host();
    }
  }

  std::size_t floats;
  std::vector<float> a, b;
};

// The seconds until all ranks are done, which begin together.
double simulated(const Fabric& fabric, Axes axes, std::string_view operation, std::size_t bytes) {
  const NetworkDescription network = describe(fabric);
  const RankBlocks blocks = blocks_of(fabric);
  const TreeNetwork tree(blocks, network.rates);
  SimulatedRanksOptions options;
  options.world.costs = network.rates.costs;
  options.world.blocks = std::make_shared<const RankBlocks>(blocks);
  options.planner =
      make_planner({.blocks = blocks, .rates = network.rates, .source = ""}, /*any_order=*/false);
  options.ranks_of_node = fabric.ranks_of_node;
  constexpr double kBegin = 1.0;  // when all have their communicators
  double end = 0.0;
  run_simulated_ranks(tree, fabric.grid.ranks(), options, [&](SimulatedRank& rank) {
    const auto comm = rank.group("group", fabric.grid.group(rank.rank(), axes));
    Call call(bytes);
    rank.compute(kBegin - rank.now());
    call.run(*comm, operation);
    end = std::max(end, rank.now());
  });
  return end - kBegin;
}

// What the closed form may be of the simulated time, as measured, and a little more. Rounds whose
// messages go near and far overlap, which the form of a barrier does not count.
struct Range {
  double least, most;
};
const std::map<std::string, Range, std::less<>> kRanges = {
    {"all_reduce", {0.95, 1.05}}, {"reduce_scatter", {0.93, 1.07}}, {"all_gather", {0.90, 1.35}},
    {"all_to_all", {0.98, 1.15}}, {"broadcast", {0.72, 1.15}},      {"barrier", {0.98, 1.40}},
    {"send", {0.98, 1.02}}};

void compare(const Fabric& fabric, Axes axes, const std::string& operation, std::size_t bytes) {
  SCOPED_TRACE(fmt::format("{} of {} bytes along {} of {}, {} a node, {} nodes a leaf", operation,
                           bytes, axes.to_string(), fabric.grid.to_string(), fabric.ranks_of_node,
                           fabric.nodes_of_leaf));
  NetworkCosts costs(describe(fabric), fabric.grid);
  std::vector<int> ranks = fabric.grid.group(0, axes);
  if (operation == "send") ranks.resize(2);
  const CommunicationCost cost =
      costs.cost(operation, {"group", axes, Purpose::kActivations}, ranks, bytes);
  const double seconds = simulated(fabric, axes, operation, bytes);
  const double ratio = (cost.latency + cost.flow) / seconds;
  const Range range = kRanges.at(operation);
  EXPECT_GE(ratio, range.least);
  EXPECT_LE(ratio, range.most);
  EXPECT_LE(cost.flow, 1.01 * seconds);
}

void compare_all(const Fabric& fabric, Axes axes) {
  for (const auto& [operation, range] : kRanges) {
    for (const std::size_t bytes : {std::size_t{24} << 10, std::size_t{768} << 10}) {
      compare(fabric, axes, operation, operation == "barrier" ? 0 : bytes);
      if (operation == "barrier") break;
    }
  }
}

TEST(NetworkSimulation, OneGroup) {
  compare_all({.grid = GridShape(4, 1, 1)}, kDataAxes);
  compare_all({.grid = GridShape(8, 1, 1), .ranks_of_node = 2}, kDataAxes);
  compare_all({.grid = GridShape(32, 1, 1), .ranks_of_node = 4, .nodes_of_leaf = 4, .taper = 2.0},
              kDataAxes);
}

TEST(NetworkSimulation, SiblingsOnEachNode) {
  compare_all({.grid = GridShape(4, 1, 2), .ranks_of_node = 2}, kDataAxes);
  compare_all({.grid = GridShape(6, 1, 4), .ranks_of_node = 4}, kDataAxes);
  compare_all({.grid = GridShape(8, 1, 4), .ranks_of_node = 4, .nodes_of_leaf = 2, .taper = 2.0},
              kDataAxes);
  // Two ranks of each group are on a node.
  compare_all({.grid = GridShape(16, 1, 2), .ranks_of_node = 4, .nodes_of_leaf = 2, .taper = 2.0},
              kDataAxes);
  compare_all({.grid = GridShape(2, 4, 4), .ranks_of_node = 4}, Axis::kPipeline);
}

TEST(NetworkSimulation, WithinNodes) {
  compare_all({.grid = GridShape(2, 1, 2), .ranks_of_node = 4}, Axis::kTensor);
  compare_all({.grid = GridShape(2, 1, 8), .ranks_of_node = 8}, Axis::kTensor);
}

}  // namespace
}  // namespace trireme::plan
