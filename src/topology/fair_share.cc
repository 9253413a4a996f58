#include "fair_share.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace trireme {
namespace {

constexpr double kTolerance = 1e-9;  // shares that differ by less are the same

}  // namespace

FairShare::FairShare(std::vector<double> capacities)
    : capacities_(std::move(capacities)),
      left_(capacities_.size()),
      growing_(capacities_.size()),
      full_(capacities_.size()) {}

void FairShare::set_rates(const std::vector<Flow*>& flows) {
  std::vector<int> used;
  for (const Flow* flow : flows) {
    for (const int link : flow->links) {
      if (growing_[static_cast<std::size_t>(link)]++ == 0) used.push_back(link);
    }
  }
  for (const int link : used) {
    const auto i = static_cast<std::size_t>(link);
    left_[i] = capacities_[i];
    full_[i] = false;
  }
  std::vector<Flow*> growing(flows);
  while (!growing.empty()) {
    double share = std::numeric_limits<double>::infinity();
    for (const int link : used) {
      const auto i = static_cast<std::size_t>(link);
      if (growing_[i] > 0) share = std::min(share, std::max(left_[i], 0.0) / growing_[i]);
    }
    for (const Flow* flow : growing) share = std::min(share, flow->most);
    for (const int link : used) {
      const auto i = static_cast<std::size_t>(link);
      full_[i] = growing_[i] > 0 && left_[i] <= share * growing_[i] * (1 + kTolerance);
    }
    std::erase_if(growing, [&](Flow* flow) {
      const bool stops =
          flow->most <= share * (1 + kTolerance) || std::ranges::any_of(flow->links, [&](int link) {
            return full_[static_cast<std::size_t>(link)];
          });
      if (!stops) return false;
      flow->rate = share;
      for (const int link : flow->links) {
        left_[static_cast<std::size_t>(link)] -= share;
        --growing_[static_cast<std::size_t>(link)];
      }
      return true;
    });
  }
}

}  // namespace trireme
