// How messages that are under way share the links on their routes.
#pragma once

#include <limits>
#include <vector>

namespace trireme {

// A message under way.
struct Flow {
  std::vector<int> links{};
  double remaining = 0.0;                                 // bytes
  double rate = 0.0;                                      // bytes/s
  double most = std::numeric_limits<double>::infinity();  // bytes/s, on links of its own
};

// Sets the rate of each flow to its max-min fair share of the links, whose capacities are in
// bytes/s: all rates grow together until a link is full or a flow is as fast as it can be; the
// flows on that link, or that flow, keep their rate, and the others go on growing.
class FairShare {
 public:
  explicit FairShare(std::vector<double> capacities);

  void set_rates(const std::vector<Flow*>& flows);

 private:
  std::vector<double> capacities_, left_;
  std::vector<int> growing_;  // flows on a link that still grow
  std::vector<bool> full_;
};

}  // namespace trireme
