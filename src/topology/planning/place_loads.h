// What the messages of a step cost, for any distribution of the grid's places over hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/topology/rank_order.h"

namespace trireme {

// `hosts[place]` is the host of each place: TreeNetwork::block of tier 0.
using HostsOfPlaces = std::vector<int>;

class PlaceLoads {
 public:
  struct Message {
    int peer;      // the other place
    double bytes;  // each way
  };
  // What messages cost, in seconds.
  struct Sum {
    double busiest = 0.0, total = 0.0;
    // Whether this is less, by more than rounding.
    bool cheaper_than(const Sum& other) const;
  };

  PlaceLoads(const GridShape& shape, const GridTraffic& traffic, const TreeNetwork& network);

  int places() const { return static_cast<int>(messages_.size()); }
  int hosts() const { return static_cast<int>(ranks_of_.size()); }
  int tiers() const { return tiers_; }  // hosts count as one
  const std::vector<Message>& messages(int place) const {
    return messages_[static_cast<std::size_t>(place)];
  }
  const std::vector<int>& ranks_of(int host) const {
    return ranks_of_[static_cast<std::size_t>(host)];
  }
  // Blocks of all tiers have numbers; those of hosts come first.
  int blocks() const { return static_cast<int>(rates_.size()); }
  int block(int tier, int host) const {
    return blocks_of_[static_cast<std::size_t>(host)][static_cast<std::size_t>(tier)];
  }
  double rate(int block) const { return rates_[static_cast<std::size_t>(block)]; }
  // About how long an evaluation takes, in units of its innermost loop.
  std::size_t work() const { return work_; }

  // Adds `bytes` between two hosts to the seconds of the blocks' ways up. Those down have the same.
  void add(std::vector<double>& seconds, int a, int b, double bytes) const {
    for (int tier = 0; tier < tiers_ && block(tier, a) != block(tier, b); ++tier) {
      for (const int host : {a, b}) {
        const int at = block(tier, host);
        seconds[static_cast<std::size_t>(at)] += bytes / rate(at);
      }
    }
  }
  std::vector<double> seconds_of(const HostsOfPlaces& hosts) const;
  static Sum sum_of(const std::vector<double>& seconds);

 private:
  int tiers_;
  std::size_t work_ = 0;
  std::vector<std::vector<Message>> messages_;  // by place
  std::vector<std::vector<int>> ranks_of_;      // by host
  std::vector<std::vector<int>> blocks_of_;     // by host, then tier
  std::vector<double> rates_;                   // bytes per second, by block
};

// Looks for a distribution that is cheaper than `hosts`. `in_order` holds the hosts of all ranks in
// the order of the fabric. Returns whether no distribution is cheaper than the result.
bool search_hosts(const GridShape& shape, const PlaceLoads& loads, const HostsOfPlaces& in_order,
                  HostsOfPlaces& hosts);

}  // namespace trireme
