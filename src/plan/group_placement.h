// Where the ranks of a communicator, or the two ends of a message, are on nodes, and who else uses
// the links there at the same time.
#pragma once

#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/comm/group_label.h"
#include "trireme/comm/rank_blocks.h"

namespace trireme::plan {

// Ranks are on nodes in their order, nodes below leaf switches in theirs.
struct NodeLayout {
  int ranks_of_node = 1;
  int nodes_of_leaf = 0;  // 0: one switch

  int node(int rank) const { return rank / ranks_of_node; }
  int leaf(int rank) const { return nodes_of_leaf > 0 ? node(rank) / nodes_of_leaf : 0; }
  int ranks_of_leaf() const { return nodes_of_leaf * ranks_of_node; }
};

// How many groups like one use a link at the same time, where it has the most, itself counted.
struct Sharing {
  int inside = 1;  // the memory of a node
  int node = 1;    // a node's way out
  int leaf = 1;    // a leaf switch's way up
  auto operator<=>(const Sharing&) const = default;
};

// Counts who shares links with the ranks of a grid, or of several equal ones, the islands, whose
// ranks are one after the other.
class SharedLinks {
 public:
  SharedLinks(const GridShape& grid, int islands, const NodeLayout& layout)
      : grid_(grid), islands_(islands), layout_(layout) {}

  // The groups of the same span as this one. A group that is the only one of its kind has none.
  Sharing of_group(const GroupLabel& label, const std::vector<int>& ranks) const;
  // The messages between the same numbers of other groups of this span.
  Sharing of_message(const GroupLabel& label, int a, int b) const;

 private:
  // A group of a span: its number among all, and its first and last member.
  struct Group {
    int number = -1;  // -1: the rank is in none
    int first = 0, last = 0;
  };
  Group group_of(const GroupLabel& label, int rank) const;
  // The rank with number `index` along the axes in the group of `rank`.
  int member(int rank, Axes axes, int index) const;
  int ranks() const { return grid_.ranks() * islands_; }

  GridShape grid_;
  int islands_;
  NodeLayout layout_;
};

// The nodes and leaf switches of ranks, in their order. Leaf switches are left out where all ranks
// are below one.
RankBlocks blocks_of(const NodeLayout& layout, const std::vector<int>& ranks);

}  // namespace trireme::plan
