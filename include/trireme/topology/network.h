// A network as links of a capacity, and the links that a message takes from one rank to another.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/rank_blocks.h"
#include "trireme/topology/fabric.h"

namespace trireme {

struct NetworkRates;

// A link is directed: a cable is two of them.
struct Link {
  std::string name;         // for people: "out of n1"
  double bytes_per_second;  // shared by the messages that take it
};

class Network {
 public:
  virtual ~Network() = default;

  virtual int ranks() const = 0;
  virtual const std::vector<Link>& links() const = 0;
  // Appends the links, as indices of links(), that a message from one rank to another takes.
  virtual void route(int from, int to, std::vector<int>& links) const = 0;
  // Returns the latency of a message, in seconds, if it depends on the two ranks.
  virtual std::optional<double> latency(int /*from*/, int /*to*/) const { return {}; }
  // Returns the highest rate of one message, in bytes per second, on links that it has to itself.
  virtual double highest_rate(int /*from*/, int /*to*/) const {
    return std::numeric_limits<double>::infinity();
  }
};

// A fabric as a tree of blocks. A block of tier t is a set of hosts that reach each other through
// switches of levels up to t. Its way up is all cables from there to level t + 1, as if routing
// divided the messages evenly among them. A message passes the ways up and down of the blocks that
// do not hold both of its ends.
class TreeNetwork final : public Network {
 public:
  struct Assumed {
    double cable_bytes_per_second = 12.5e9;  // of a cable whose rate is not known: 100 Gbit/s
    double memory_bytes_per_second = 10e9;   // of all messages inside of a host
  };

  // `host_of` maps each rank to its host, a vertex of the fabric. The ranks of a host share its
  // cables. Hosts that no cable connects count as connected above all switches. Throws
  // InternalError for a vertex that is no host. Switches above kMostTiers are left out.
  static constexpr int kMostTiers = 15;
  TreeNetwork(const Fabric& fabric, const std::vector<int>& host_of, Assumed assumed);

  // One rank on each place of `blocks`, whose tier 0 are the hosts. A link has the highest rate
  // that was measured across it. Distances beyond those of the rates have the rates of the last
  // one.
  TreeNetwork(const RankBlocks& blocks, const NetworkRates& rates);

  int ranks() const override { return static_cast<int>(place_of_.size()); }
  const std::vector<Link>& links() const override { return links_; }
  void route(int from, int to, std::vector<int>& links) const override;

  std::optional<double> latency(int from, int to) const override;
  double highest_rate(int from, int to) const override;

  // Which ranks are near each other. Tier 0 are the hosts. Highest tiers that hold all ranks in one
  // block are left out.
  RankBlocks rank_blocks() const;
  // Sets, for each link, the messages that take it if every rank sends one to every other.
  void count_everyone(std::vector<double>& messages) const;
  int tiers() const { return static_cast<int>(block_of_.size()); }
  // Returns the block of tier 1 to tiers() that holds a rank, or its host for tier 0. Blocks are
  // numbered in each tier.
  int block(int tier, int rank) const;
  // Returns the link that leads out of that block, or host, towards the higher tiers.
  const Link& way_up(int tier, int rank) const;

 private:
  static constexpr int kLinksOfHost = 3;  // up, down, memory

  void add_hosts(const Fabric& fabric, const std::vector<int>& hosts, Assumed assumed);
  // `blocks` tells vertices of one block by the same number.
  void add_tier(const Fabric& fabric, const std::vector<int>& hosts, Assumed assumed, int tier,
                const std::vector<int>& blocks);
  std::vector<int> place_on_hosts(const RankBlocks& blocks);
  void add_rated_tier(const RankBlocks& blocks, int tier, const std::vector<int>& hosts,
                      double rate);

  std::vector<int> place_of_;  // of each rank: its host, counted from 0 among those in use
  std::vector<Link> links_;    // of each host, then up and down of each block, tier by tier
  std::vector<std::vector<int>> block_of_;  // by tier: of each host
  std::vector<int> first_link_;             // by tier
  struct Distance {
    double latency, highest_rate;
  };
  // Returns an index into distances_.
  int distance(int from, int to) const;

  std::vector<Distance> distances_;  // empty: not known
};

}  // namespace trireme
