// Which rank takes which place of the grid, so that what a step sends crosses few links.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/topology/network.h"

namespace trireme {

// What one step sends, in bytes. What a rank sums counts once, as the size of the sum.
struct GridTraffic {
  double data = 0.0;      // that a rank sums with the other replicas
  double pipeline = 0.0;  // that a rank sends to each of the stages before and after its own
  double tensor = 0.0;    // that a rank sums with the other tensor ranks
  double ends = 0.0;      // that a rank of the first stage sums with its partner in the last one
};

// The load of the links between hosts in a step. Messages inside a host cost nothing.
struct OrderCost {
  double busiest = 0.0;  // seconds for which the link with the most to do carries messages
  double total = 0.0;    // the same, summed over all links
  std::string link;      // the name of the busiest link; empty if nothing leaves a host
};

// `order[place]` is the rank at a place of the grid (ProcessGrid). Sums send what halving and
// doubling that begins with neighbours sends: ranks whose places in the dimension differ in bit k
// exchange size / 2^k bytes. src/topology/README.md, "Rank order", states the model.
OrderCost cost_of_order(const GridShape& shape, const GridTraffic& traffic,
                        const TreeNetwork& network, const std::vector<int>& order);

// Returns the bytes that each cable of a fabric carries in a step, each way, by the same model.
// `host_of[place]` is a host, a vertex of the fabric. The cables that lead up from a block share
// its messages in proportion to their rates; one whose rate is not known counts as
// TreeNetwork::Assumed.
std::vector<double> bytes_of_cables(const GridShape& shape, const GridTraffic& traffic,
                                    const Fabric& fabric, const std::vector<int>& host_of);

struct RankOrder {
  std::vector<int> ranks;  // by place; 0, 1, 2, ... if no order is cheaper
  OrderCost launcher;      // of the order 0, 1, 2, ...
  OrderCost chosen;
  bool exact = false;  // no order is cheaper than the chosen one
};

// Returns an order that costs no more than the launcher's, first by the busiest link and then by
// the total. It depends on the arguments alone. `hosts[rank]` names the host of each rank; ranks of
// equal standing are taken by the names of their hosts, so that a launcher that lists the nodes in
// another order gets the same places on the same nodes.
RankOrder order_ranks(const GridShape& shape, const GridTraffic& traffic,
                      const TreeNetwork& network, const std::vector<std::string>& hosts);

// Returns the ranks block by block from the highest tier on, then host by host in the order of
// names ("n9" before "n10"), then by rank.
std::vector<int> fabric_order(const TreeNetwork& network, const std::vector<std::string>& hosts);

// Reads an order from a file of one rank a line, or of one host a line: all of its ranks take the
// next places. Text from '#' on and empty lines do not count. `hosts[rank]` names the host of each
// rank; `origin` names the file in messages. Throws ConfigError unless each rank, or each host, is
// listed once.
std::vector<int> read_rank_order(std::string_view text, const std::string& origin,
                                 const std::vector<std::string>& hosts);

// Says which places a host's ranks take: "n1: 0-3, n2: 4-7", hosts in the order of their first
// places.
std::string describe_places(const std::vector<int>& order, const std::vector<std::string>& hosts);

}  // namespace trireme
