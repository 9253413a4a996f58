// A network as links with a capacity, and the route of links that a message takes between two
// ranks.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// A link is directed: a cable is two of them.
struct Link {
  std::string name;         // for people: "leaf2 up"
  double bytes_per_second;  // shared by the messages that take it
};

class Network {
 public:
  virtual ~Network() = default;

  virtual int ranks() const = 0;
  virtual const std::vector<Link>& links() const = 0;
  // Appends the links, as indices of links(), that a message from one rank to another takes.
  virtual void route(int from, int to, std::vector<int>& links) const = 0;
};

// A tree of switches in which each switch of a level has the same number of children. The uplinks
// of a switch count as one link of their joint capacity, as if routing divided the messages evenly.
class FatTree final : public Network {
 public:
  struct Level {
    int children;                // of each switch: hosts on the lowest level
    double up_bytes_per_second;  // of a switch, in each direction; ignored on the highest level
  };

  // `host_of` maps each rank to its host. Hosts are numbered along the leaves. `levels` goes from
  // the leaves to the root. The ranks of a host share its cable of `host_bytes_per_second` in each
  // direction; messages between them take a link of `memory_bytes_per_second`. Throws InternalError
  // if a host is not in the tree.
  FatTree(std::vector<int> host_of, double host_bytes_per_second, std::vector<Level> levels,
          double memory_bytes_per_second);

  int ranks() const override { return static_cast<int>(host_of_.size()); }
  const std::vector<Link>& links() const override { return links_; }
  void route(int from, int to, std::vector<int>& links) const override;

 private:
  struct Tier {
    int hosts;  // below each switch of the tier
    int up;     // index of the first switch's uplink; its downlink is next
  };

  std::vector<int> host_of_;
  // For each host: up, down, memory. Then for each switch, tier by tier: up, down.
  std::vector<Link> links_;
  std::vector<Tier> tiers_;
};

}  // namespace trireme
