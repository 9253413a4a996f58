// The levels of a fabric's switches. A fabric need not be a tree: hosts for storage and for logins
// hang on spines, racks are without power, and in a dragonfly all switches are alike.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "trireme/topology/fabric.h"

namespace trireme {
namespace {

constexpr int kMostTiers = 3;   // of switches below one that has hosts of its own
constexpr int kMostLevels = 8;  // whose switches are looked at for what they join

// Sets of vertices that are joined step by step.
class JoinedSets {
 public:
  explicit JoinedSets(std::size_t vertices) : above_(vertices) {
    std::iota(above_.begin(), above_.end(), std::size_t{0});
  }
  std::size_t find(std::size_t vertex) {
    while (above_[vertex] != vertex) {
      above_[vertex] = above_[above_[vertex]];
      vertex = above_[vertex];
    }
    return vertex;
  }
  void join(std::size_t a, std::size_t b) { above_[find(a)] = find(b); }

 private:
  std::vector<std::size_t> above_;
};

class Levels {
 public:
  Levels(const std::vector<FabricVertex>& vertices, const std::vector<Cable>& cables)
      : vertices_(vertices), ways_(vertices.size()), hosts_(vertices.size(), 0) {
    std::vector<std::pair<int, int>> hosts;  // a switch and one of its hosts
    for (const Cable& cable : cables) {
      for (const auto& [from, to] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
        const auto at = static_cast<std::size_t>(from);
        if (!vertices[at].is_switch) continue;
        if (vertices[static_cast<std::size_t>(to)].is_switch) {
          ways_[at].push_back(static_cast<std::size_t>(to));
        } else {
          hosts.emplace_back(from, to);
        }
      }
    }
    std::ranges::sort(hosts);
    const auto again = std::ranges::unique(hosts);
    hosts.erase(again.begin(), again.end());
    for (const auto& [self, host] : hosts) ++hosts_[static_cast<std::size_t>(self)];
    for (const FabricVertex& vertex : vertices) above_.push_back(vertex.is_above);
  }

  std::vector<int> find() {
    for (int tier = 1; tier <= kMostTiers; ++tier) lift(tier);
    count_from_leaves();
    drop_what_joins_nothing();
    return std::move(levels_);
  }

 private:
  static constexpr int kFar = std::numeric_limits<int>::max();

  bool is_leaf(std::size_t vertex) const { return hosts_[vertex] > 0 && !above_[vertex]; }

  // Finds the switches above others that have hosts nevertheless: one that has fewer hosts than
  // there are groups of switches with more hosts that it joins. Leaf switches that are cabled to
  // each other without it are one group, and at a higher tier so are those below the same switches;
  // so nothing is above the others in a dragonfly or a torus, or of two switches.
  void lift(int tier) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
      if (is_leaf(i)) order.push_back(i);
    }
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return hosts_[i]; });
    JoinedSets groups(vertices_.size());
    std::vector<int> distance(vertices_.size(), kFar);  // from the leaves of groups; kFar: in none
    for (std::size_t i = 0; i < order.size();) {
      std::size_t end = i;  // all with as many hosts
      while (end < order.size() && hosts_[order[end]] == hosts_[order[i]]) ++end;
      std::vector<std::size_t> lifted;
      for (std::size_t at = i; at < end; ++at) {
        if (hosts_[order[at]] < groups_at(order[at], groups, distance)) lifted.push_back(order[at]);
      }
      for (const std::size_t each : lifted) above_[each] = true;
      for (; i < end; ++i) {
        if (!above_[order[i]]) add_leaf(order[i], tier, groups, distance);
      }
    }
  }

  int groups_at(std::size_t self, JoinedSets& groups, const std::vector<int>& distance) const {
    std::vector<std::size_t> found;
    for (const std::size_t way : ways_[self]) {
      if (distance[way] != kFar) found.push_back(groups.find(way));
    }
    std::ranges::sort(found);
    return static_cast<int>(std::ranges::unique(found).begin() - found.begin());
  }

  // Adds a leaf, and the switches of fewer than `tier` levels above it.
  void add_leaf(std::size_t leaf, int tier, JoinedSets& groups, std::vector<int>& distance) const {
    distance[leaf] = 0;
    std::vector<std::size_t> reached{leaf};
    for (std::size_t at = 0; at < reached.size(); ++at) {
      const std::size_t self = reached[at];
      for (const std::size_t way : ways_[self]) {
        if (!is_leaf(way) && distance[self] + 1 < std::min(tier, distance[way])) {
          distance[way] = distance[self] + 1;
          reached.push_back(way);
        }
        if (distance[way] != kFar) groups.join(self, way);
      }
    }
  }

  void count_from_leaves() {
    levels_.assign(vertices_.size(), -1);
    std::vector<std::size_t> reached;
    const auto reach = [&](std::size_t vertex, int level) {
      if (levels_[vertex] >= 0) return;
      levels_[vertex] = level;
      reached.push_back(vertex);
    };
    const auto go_on = [&](std::size_t at) {
      for (; at < reached.size(); ++at) {
        const std::size_t self = reached[at];
        for (const std::size_t way : ways_[self]) reach(way, levels_[self] + 1);
      }
    };
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
      if (!vertices_[i].is_switch) levels_[i] = 0;
      if (is_leaf(i)) reach(i, 1);
    }
    go_on(0);
    // What is said to be above others, but no cable leads there.
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
      const std::size_t before = reached.size();
      if (hosts_[i] > 0) reach(i, 1);
      go_on(before);
    }
  }

  // A rack without power is as far from the hosts as a spine of the next level, but hosts do not
  // need it to reach each other. A description that names levels itself knows better.
  void drop_what_joins_nothing() {
    for (int level = 2; level <= kMostLevels; ++level) {
      JoinedSets sets(vertices_.size());  // below the level, and from there on
      const auto is_high = [&](std::size_t i) { return levels_[i] >= level; };
      for (std::size_t i = 0; i < vertices_.size(); ++i) {
        for (const std::size_t way : ways_[i]) {
          if (levels_[i] > 0 && levels_[way] > 0 && is_high(i) == is_high(way)) sets.join(i, way);
        }
      }
      constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
      std::vector<std::size_t> joins(vertices_.size(), kNone);  // by a set's first: one set below
      std::vector<bool> stays(vertices_.size(), false);
      for (std::size_t i = 0; i < vertices_.size(); ++i) {
        if (!is_high(i)) continue;
        const std::size_t set = sets.find(i);
        if (hosts_[i] > 0 || vertices_[i].from != FabricSource::kDump) stays[set] = true;
        for (const std::size_t way : ways_[i]) {
          if (levels_[way] <= 0 || is_high(way)) continue;
          const std::size_t below = sets.find(way);
          if (joins[set] == kNone) joins[set] = below;
          if (joins[set] != below) stays[set] = true;
        }
      }
      bool any = false;
      for (std::size_t i = 0; i < vertices_.size(); ++i) {
        if (!is_high(i)) continue;
        if (!stays[sets.find(i)]) levels_[i] = -1;
        any = any || levels_[i] > level;
      }
      if (!any) return;
    }
  }

  const std::vector<FabricVertex>& vertices_;
  std::vector<std::vector<std::size_t>> ways_;  // from each switch to others
  std::vector<int> hosts_;                      // on each switch
  std::vector<bool> above_;                     // leaf switches, whatever hosts are on it
  std::vector<int> levels_;
};

}  // namespace

void Fabric::find_levels() {
  const std::vector<int> levels = Levels(vertices_, cables_).find();
  for (std::size_t i = 0; i < levels.size(); ++i) vertices_[i].level = levels[i];
}

}  // namespace trireme
