// Prints what collectives take among thousands of ranks of a simulated world: the time that is
// predicted, and the processor time that predicting it costs. One rank on each host of a fat tree
// of three levels, tapered 2:1 at each.
//
// usage: simulation_bench [RANKS [COLLECTIVE [ALGORITHM [BYTES]]]]; RANKS is 64, 512 or 4096
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "trireme/comm/collective_tasks.h"
#include "trireme/topology/network.h"
#include "trireme/topology/simulated_world.h"

namespace {

using namespace trireme;

constexpr double kRate = 25e9;  // bytes/s of a host
constexpr SimulatedCosts kCosts = {
    .latency = 2e-6, .message = 2e-7, .reduced_byte = 5e-11, .copied_byte = 2e-11};

TreeNetwork fat_tree(int ranks) {
  const int width = ranks == 4096 ? 16 : ranks == 512 ? 8 : 4;
  const Fabric fabric = make_fat_tree(
      {{width, width / 2 * kRate}, {width, width * width / 4 * kRate}, {width, 0.0}}, kRate);
  std::vector<int> host_of;
  for (int i = 0; i < ranks; ++i) host_of.push_back(*fabric.host(fmt::format("host{}", i)));
  return TreeNetwork(fabric, host_of, {});
}

// Whether it sends more messages among so many ranks than fit in the memory of a laptop.
bool too_many_messages(Collective collective, Algorithm algorithm, int ranks) {
  if (ranks <= 512) return false;
  const bool few = algorithm == Algorithm::kBruck || algorithm == Algorithm::kDoubling ||
                   algorithm == Algorithm::kHalving || algorithm == Algorithm::kBinomial ||
                   algorithm == Algorithm::kTiered;
  return collective == Collective::kAllToAll || !few;
}

void measure(const TreeNetwork& network, const std::shared_ptr<const RankBlocks>& blocks,
             Collective collective, Algorithm algorithm, std::int64_t bytes) {
  const int ranks = network.ranks();
  const std::clock_t began = std::clock();
  SimulatedWorld world(network, {.costs = kCosts, .contents = false, .blocks = blocks});
  const auto result = world.run(ranks, [&](TransportPtr transport) {
    const Tensor whole = world.tensor(bytes / 4, DType::kF32);
    const Tensor part = world.tensor(bytes / 4 / ranks, DType::kF32);
    return make_collective(collective, algorithm, std::move(transport),
                           {.input = collective == Collective::kAllGather ? part : whole,
                            .output = collective == Collective::kReduceScatter ? part : whole});
  });
  const double took = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  fmt::print("{:6} {:>14} {:>10} {:>9} {:>12.1f} {:>9} {:>8} {:>8.2f} {:>8}\n", ranks,
             name_of(collective), name_of(algorithm), bytes, 1e6 * result.seconds, result.messages,
             result.worst_messages, took, use.ru_maxrss / 1024);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const auto wants = [&](int place, std::string_view name) {
    return count <= place || name == arguments[place];
  };
  fmt::print("{:>6} {:>14} {:>10} {:>9} {:>12} {:>9} {:>8} {:>8} {:>8}\n", "ranks", "collective",
             "algorithm", "bytes", "predicted us", "messages", "of worst", "cpu s", "peak MiB");
  for (const int ranks : {64, 512, 4096}) {
    if (!wants(1, std::to_string(ranks))) continue;
    const TreeNetwork network = fat_tree(ranks);
    const auto blocks = std::make_shared<const RankBlocks>(network.rank_blocks());
    for (const Collective collective : kCollectives) {
      if (collective == Collective::kExchange || !wants(2, name_of(collective))) continue;
      for (const Algorithm algorithm : algorithms_of(collective)) {
        if (!wants(3, name_of(algorithm))) continue;
        if (too_many_messages(collective, algorithm, ranks)) continue;
        for (const std::int64_t bytes : {std::int64_t{32} << 10, std::int64_t{16} << 20}) {
          if (!wants(4, std::to_string(bytes))) continue;
          measure(network, blocks, collective, algorithm, bytes);
        }
      }
    }
  }
}
