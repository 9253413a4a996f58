// What people ask about a fabric.
#pragma once

#include <string>
#include <vector>

#include "trireme/topology/fabric.h"

namespace trireme {

struct FabricLevel {
  int level = 0;  // 0: hosts
  int vertices = 0;
  int cables_up = 0;                   // to the next level
  int unknown_rates = 0;               // of these cables
  double up_bytes_per_second = 0.0;    // the sum of their known rates
  double down_bytes_per_second = 0.0;  // the same towards the level below
  // Down over up capacity; 0 where there is no level above or a rate is not known.
  double taper = 0.0;
  std::vector<FabricSource> sources = {};  // of the cables up; of the vertices on the highest level
};

// The first adapters of all hosts are a rail, the second ones another, and so on, if no leaf switch
// has cables to two of them.
struct FabricRails {
  int adapters = 0;  // of the host with the most, counted by cables to leaf switches
  bool are_rails = false;
  std::vector<int> leaves = {};  // of each rail
};

std::vector<FabricLevel> levels_of(const Fabric& fabric);
FabricRails rails_of(const Fabric& fabric);

std::string gigabits(double bytes_per_second);  // "200 Gbit/s"

// Returns the hosts, sorted by name: "n10" after "n9".
std::vector<int> hosts_by_name(const Fabric& fabric);

// Returns the part of a fabric that some of its hosts, vertices, need to reach each other: these
// hosts, the switches of the blocks that hold them up to the level at which all are in one block,
// and the cables between these. Levels are those of the whole; remarks are left out.
Fabric part_of(const Fabric& fabric, const std::vector<int>& hosts);

// Hosts that reach each other through switches of levels up to `level`. Returns the number of each
// vertex's block, counted from 0 by the blocks' first vertices; -1 for vertices of higher levels.
std::vector<int> blocks_of(const Fabric& fabric, int level);

}  // namespace trireme
