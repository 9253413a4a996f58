// Cables and leaf switches that differ from their like: half the width, a slower cable, one
// missing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trireme/topology/fabric.h"

namespace trireme {

// Below this share of what the others have, a port or a cable is slow. At half width it has a half.
inline constexpr double kSlowShare = 0.75;

// Returns, for each cable, what is usual for its like, in bytes per second: for a cable of a host
// the median of the hosts' cables at the same switch, for one between switches that of the cables
// of switches of the same level. 0: its own rate is not known.
std::vector<double> usual_rates(const Fabric& fabric);

struct SlowCable {
  std::size_t cable;  // of the fabric
  int low, high;      // its ends, vertices
  double usual;       // bytes per second
};
std::vector<SlowCable> slow_cables(const Fabric& fabric);
// "leaf1 to spine1: ibnetdiscover says 100 Gbit/s; usual from switches of level 1 is 200 Gbit/s"
std::string text_of(const Fabric& fabric, const SlowCable& slow);

// A leaf switch whose taper, towards its hosts over upwards, is not that of most others.
struct OddTaper {
  int leaf;             // a vertex
  double taper, usual;  // 0: no cable leads up
  bool is_worse() const { return taper == 0.0 || taper > usual; }
};
// Leaf switches with a cable whose rate is not known are left out.
std::vector<OddTaper> odd_tapers(const Fabric& fabric);
// "leaf2: a taper of 4:1; usual is 2:1"
std::string text_of(const Fabric& fabric, const OddTaper& odd);

}  // namespace trireme
