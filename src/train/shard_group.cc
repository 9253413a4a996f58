#include "train/shard_group.h"

#include <bit>

#include "trireme/setup/run_grid.h"

namespace trireme {
namespace {

// Returns the number of ranks of a node, if all nodes have as many.
std::optional<int> ranks_of_each_node(const RankBlocks& blocks) {
  if (blocks.tiers() == 0) return {};  // one node holds all
  std::vector<int> ranks(static_cast<std::size_t>(blocks.blocks(0)));
  for (int rank = 0; rank < blocks.ranks(); ++rank) {
    ++ranks[static_cast<std::size_t>(blocks.block(0, rank))];
  }
  for (const int of_node : ranks) {
    if (of_node != ranks.front()) return {};
  }
  return ranks.front();
}

bool slower_between_nodes(const NetworkRates& rates) {
  return rates.distances.size() > 1 && rates.distances[1].host < rates.distances[0].host;
}

}  // namespace

std::vector<GridShape> grids_of_shards(const Config& config, const GridShape& grid,
                                       const std::optional<JobNetwork>& network, bool on_gpus) {
  std::vector<GridShape> grids;
  const int replicas = grid.extent(kDataAxes), of_model = grid.extent(kModelAxes);
  const bool open = config.shard.divides_state() && !config.shard.group && network.has_value();
  if (open && (on_gpus || slower_between_nodes(network->rates))) {
    const int ranks = ranks_of_each_node(network->blocks).value_or(0);
    const int of_node = ranks % of_model == 0 ? ranks / of_model : 0;
    for (int group = of_node; group > 1 && group < replicas; group += of_node) {
      if (replicas % group != 0) continue;
      // Only such groups keep the tree of sums.
      if (config.run.same_bits && !std::has_single_bit(static_cast<unsigned>(group))) continue;
      Config::Shard shard = config.shard;
      shard.group = group;
      grids.push_back(with_shards(grid, shard));
    }
  }
  grids.push_back(grid);
  return grids;
}

}  // namespace trireme
