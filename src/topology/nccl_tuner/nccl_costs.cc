#include "trireme/topology/nccl_costs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/topology/planner.h"

namespace trireme {
namespace {

using GroupPattern = NcclGroup::Pattern;

// How NCCL's protocols use a link (Z. Hu et al., Demystifying NCCL, 2025, section III). LL sends a
// flag with every four bytes and does without direct access of adapters to a GPU's memory; LL128
// sends 8 bytes of flags with 120; simple fills its buffers before it sends them.
struct ProtocolCosts {
  double hop;      // seconds, besides the latency of the link
  double network;  // share of a network's bandwidth
  double inside;   // share of the bandwidth inside of a node
};
constexpr std::array<ProtocolCosts, kNcclProtocols> kProtocols{
    {{1e-6, 0.25, 0.5}, {2e-6, 0.9375, 0.9375}, {6e-6, 1.0, 1.0}}};

struct Edge {
  int from, to;  // nodes
  double bytes;  // for each byte that the algorithm handles
};

class Nodes {
 public:
  Nodes(const RankBlocks& blocks, const NetworkRates& rates) : blocks_(blocks), rates_(rates) {
    lowest_rank_.assign(static_cast<std::size_t>(blocks.blocks(0)), -1);
    std::vector<int> counts(lowest_rank_.size());
    for (int rank = 0; rank < blocks.ranks(); ++rank) {
      const auto node = static_cast<std::size_t>(blocks.block(0, rank));
      if (lowest_rank_[node] < 0) lowest_rank_[node] = rank;
      most_ranks_ = std::max(most_ranks_, ++counts[node]);
    }
  }

  int count() const { return static_cast<int>(lowest_rank_.size()); }
  int most_ranks() const { return most_ranks_; }
  double latency(int from, int to) const { return rates(distance(from, to)).latency; }

  // The time per byte of the way that is busiest while all edges are in use.
  double busiest(const std::vector<Edge>& edges) const {
    double most = 0.0;
    for (int tier = 0; tier < blocks_.tiers(); ++tier) {
      std::vector<double> out(static_cast<std::size_t>(blocks_.blocks(tier))), in(out.size());
      for (const Edge& edge : edges) {
        if (distance(edge.from, edge.to) <= tier) continue;  // stays inside of a block
        out[block(tier, edge.from)] += edge.bytes;
        in[block(tier, edge.to)] += edge.bytes;
      }
      const double rate = tier == 0 ? way_out() : rates(tier + 1).block;
      if (rate <= 0.0) continue;  // nothing limits it
      for (const auto& loads : {out, in})
        most = std::max(most, *std::ranges::max_element(loads) / rate);
    }
    return most;
  }

 private:
  // The rate of a node, in bytes per second.
  double way_out() const { return rates(1).host > 0.0 ? rates(1).host : rates(1).flow; }
  int rank(int node) const { return lowest_rank_[static_cast<std::size_t>(node)]; }
  int distance(int from, int to) const { return blocks_.distance(rank(from), rank(to)); }
  std::size_t block(int tier, int node) const {
    return static_cast<std::size_t>(blocks_.block(tier, rank(node)));
  }
  const DistanceRates& rates(int distance) const {
    return rates_
        .distances[std::min(static_cast<std::size_t>(distance), rates_.distances.size() - 1)];
  }

  const RankBlocks& blocks_;
  const NetworkRates& rates_;
  std::vector<int> lowest_rank_;
  int most_ranks_ = 0;
};

GroupPattern ring(const Nodes& nodes, int ranks) {
  GroupPattern made;
  std::vector<Edge> edges;
  for (int node = 0; node < nodes.count(); ++node) {
    const int next = (node + 1) % nodes.count();
    edges.push_back({node, next, 1.0});
    made.latency += nodes.latency(node, next);
  }
  made.hops = nodes.count();
  made.node_hops = ranks - nodes.count();
  made.seconds_per_byte = nodes.busiest(edges);
  made.node_bytes = nodes.most_ranks() > 1 ? 1.0 : 0.0;
  return made;
}

// NCCL's binary tree over nodes (P. Sanders et al., Two-tree algorithms for full bandwidth
// broadcast, reduction and scan, 2009): odd nodes are leaves, and a node's lowest bit tells its
// level.
int parent_in_tree(int node, int nodes) {
  const int bit = node & -node;
  const int above = (node ^ bit) | (bit << 1);
  return above < nodes ? above : node ^ bit;
}

// The second tree is the mirrored first one, or, for an odd number of nodes, shifted by one.
int in_second_tree(int node, int nodes) {
  return nodes % 2 == 0 ? nodes - 1 - node : (node + 1) % nodes;
}

GroupPattern tree(const Nodes& nodes) {
  GroupPattern made;
  std::vector<Edge> edges;
  const int count = nodes.count();
  for (const bool second : {false, true}) {
    const auto place = [&](int node) { return second ? in_second_tree(node, count) : node; };
    for (int node = 1; node < count; ++node) {
      const int child = place(node), parent = place(parent_in_tree(node, count));
      edges.push_back({child, parent, 0.5});
      edges.push_back({parent, child, 0.5});
      double latency = 0.0, hops = 0.0;
      for (int at = node; at != 0; at = parent_in_tree(at, count), ++hops) {
        latency += nodes.latency(place(at), place(parent_in_tree(at, count)));
      }
      made.latency = std::max(made.latency, 2 * latency);
      made.hops = std::max(made.hops, 2 * hops);
    }
  }
  made.node_hops = 2 * (nodes.most_ranks() - 1);
  made.seconds_per_byte = nodes.busiest(edges);
  made.node_bytes = nodes.most_ranks() > 1 ? 2.0 : 0.0;
  return made;
}

// Bruck's algorithm from the farthest distance to the nearest, so that most bytes travel near.
GroupPattern pat(const Nodes& nodes) {
  GroupPattern made;
  std::vector<Edge> edges;
  const int count = nodes.count();
  int distance = 1;
  while (2 * distance < count) distance *= 2;
  for (int known = 1; known < count; known *= 2, distance /= 2) {
    double latency = 0.0;
    for (int node = 0; node < count; ++node) {
      const int to = (node + distance) % count;
      edges.push_back({node, to, static_cast<double>(std::min(known, count - known)) / count});
      latency = std::max(latency, nodes.latency(node, to));
    }
    made.latency += latency;
    ++made.hops;
  }
  made.seconds_per_byte = nodes.busiest(edges);
  return made;
}

double seconds(const NcclGroup& group, const GroupPattern& pattern, NcclProtocol protocol,
               double rounds, double bytes) {
  const ProtocolCosts& costs = kProtocols[static_cast<std::size_t>(protocol)];
  const double waiting = pattern.latency + pattern.hops * costs.hop +
                         pattern.node_hops * (group.links.latency + costs.hop);
  const double sending = std::max(pattern.seconds_per_byte / costs.network,
                                  pattern.node_bytes / group.links.bytes_per_second / costs.inside);
  return rounds * waiting + bytes * sending;
}

std::vector<NcclAlgorithm> algorithms_compared(const NcclGroup& group) {
  std::vector<NcclAlgorithm> compared{NcclAlgorithm::kTree, NcclAlgorithm::kRing};
  if (group.pat) compared.push_back(NcclAlgorithm::kPat);
  return compared;
}

// The cells from the fastest on, as far as one of the protocol that NCCL always has.
std::vector<NcclCell> best_cells(const std::vector<const NcclGroup*>& groups,
                                 NcclCollective collective, std::uint64_t bytes) {
  std::vector<std::pair<double, NcclCell>> timed;
  for (const NcclAlgorithm algorithm : algorithms_compared(*groups.front())) {
    for (int protocol = 0; protocol < kNcclProtocols; ++protocol) {
      const NcclCell cell{algorithm, static_cast<NcclProtocol>(protocol)};
      double slowest = -1.0;
      for (const NcclGroup* group : groups) {
        slowest = std::max(slowest, nccl_seconds(*group, collective, cell, bytes).value_or(-1.0));
      }
      if (slowest >= 0.0) timed.emplace_back(slowest, cell);
    }
  }
  std::ranges::stable_sort(timed, {}, &std::pair<double, NcclCell>::first);
  std::vector<NcclCell> cells;
  for (const auto& [time, cell] : timed) {
    cells.push_back(cell);
    if (cell.protocol == NcclProtocol::kSimple) break;
  }
  return cells;
}

NcclTable make_table(const std::vector<const NcclGroup*>& groups) {
  constexpr int kSmallest = 10, kLargest = 30;  // powers of two
  const NcclGroup& first = *groups.front();
  NcclTable table{first.ranks, first.nodes, algorithms_compared(first), {}};
  for (int number = 0; number < kNcclCollectives; ++number) {
    const auto collective = static_cast<NcclCollective>(number);
    const std::size_t begin = table.rules.size();
    for (int power = kSmallest; power <= kLargest; ++power) {
      const std::uint64_t most = std::uint64_t{1} << power;
      // A rule is for sizes from half of its limit on.
      NcclRule rule{collective, most, best_cells(groups, collective, most / 4 * 3)};
      if (table.rules.size() > begin && table.rules.back().cells == rule.cells) {
        table.rules.back().most_bytes = most;
      } else {
        table.rules.push_back(std::move(rule));
      }
    }
    table.rules.back().most_bytes = NcclRule::kAllSizes;
  }
  return table;
}

}  // namespace

NcclGroup nccl_group(const RankBlocks& blocks, const NetworkRates& rates, NcclNodeLinks links) {
  const Nodes nodes(blocks, rates);
  NcclGroup group;
  group.ranks = static_cast<std::uint64_t>(blocks.ranks());
  group.nodes = static_cast<std::uint64_t>(nodes.count());
  group.links = links;
  if (group.nodes == 1) return group;
  group.ring = ring(nodes, blocks.ranks());
  group.tree = tree(nodes);
  if (nodes.most_ranks() == 1) group.pat = pat(nodes);
  return group;
}

std::optional<double> nccl_seconds(const NcclGroup& group, NcclCollective collective,
                                   const NcclCell& cell, std::uint64_t bytes) {
  const auto ranks = static_cast<double>(group.ranks);
  const double size = static_cast<double>(bytes), part = (ranks - 1) / ranks;
  const bool all_reduce = collective == NcclCollective::kAllReduce;
  const bool parts =
      collective == NcclCollective::kAllGather || collective == NcclCollective::kReduceScatter;
  switch (cell.algorithm) {
    case NcclAlgorithm::kRing: {
      const double rounds = all_reduce ? 2 * part : part;
      const double times = all_reduce ? 2 * part : parts ? part : 1.0;
      return seconds(group, group.ring, cell.protocol, rounds, times * size);
    }
    case NcclAlgorithm::kTree:
      if (!all_reduce) return std::nullopt;
      return seconds(group, group.tree, cell.protocol, 1.0, size);
    case NcclAlgorithm::kPat:
      if (!parts || !group.pat || cell.protocol != NcclProtocol::kSimple) return std::nullopt;
      return seconds(group, *group.pat, cell.protocol, 1.0, size);
    default:
      return std::nullopt;
  }
}

std::vector<NcclTable> make_nccl_tables(const std::vector<NcclGroup>& groups) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<const NcclGroup*>> by_size;
  for (const NcclGroup& group : groups) {
    if (group.nodes > 1) by_size[{group.ranks, group.nodes}].push_back(&group);
  }
  std::vector<NcclTable> tables;
  for (const auto& [size, members] : by_size) tables.push_back(make_table(members));
  return tables;
}

std::string nccl_table_text(const StoredRates& stored, const std::vector<std::string>& hosts) {
  return nccl_table_text(job_network(stored, "", hosts).blocks, stored.rates);
}

std::string nccl_table_text(const RankBlocks& blocks, const NetworkRates& rates) {
  return write_nccl_tables(make_nccl_tables({nccl_group(blocks, rates)}));
}

std::string join_nccl_tables(const std::map<std::string, std::string>& texts) {
  std::vector<NcclTable> kept;
  std::string comments;
  for (const auto& [name, text] : texts) {
    std::string problem;
    const auto tables = read_nccl_tables(text, problem);
    if (!tables) continue;
    for (const NcclTable& table : *tables) {
      const NcclTable* known = find_nccl_table(kept, table.ranks, table.nodes);
      comments += "# " + name + ": " + std::to_string(table.ranks) + " ranks on " +
                  std::to_string(table.nodes) + " nodes";
      if (known != nullptr && !(*known == table)) {
        comments += ", with a table of its own:\n# ";
        for (const char letter : write_nccl_tables({table})) {
          comments += letter;
          if (letter == '\n') comments += "# ";
        }
      }
      comments += '\n';
      if (known == nullptr) kept.push_back(table);
    }
  }
  return kept.empty() ? "" : write_nccl_tables(kept) + comments;
}

}  // namespace trireme
