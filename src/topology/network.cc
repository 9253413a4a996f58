#include "trireme/topology/network.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

FatTree::FatTree(std::vector<int> host_of, double host_bytes_per_second, std::vector<Level> levels,
                 double memory_bytes_per_second)
    : host_of_(std::move(host_of)) {
  int hosts = 1;
  for (const Level& level : levels) hosts *= level.children;
  for (const int host : host_of_) {
    TRIREME_CHECK(0 <= host && host < hosts, fmt::format("host {} of {}", host, hosts));
  }
  for (int host = 0; host < hosts; ++host) {
    links_.push_back({fmt::format("host {} up", host), host_bytes_per_second});
    links_.push_back({fmt::format("host {} down", host), host_bytes_per_second});
    links_.push_back({fmt::format("memory of host {}", host), memory_bytes_per_second});
  }
  int below = 1;
  for (std::size_t level = 0; level + 1 < levels.size(); ++level) {
    below *= levels[level].children;
    tiers_.push_back({below, static_cast<int>(links_.size())});
    for (int at = 0; at < hosts / below; ++at) {
      for (const char* way : {"up", "down"}) {
        links_.push_back({fmt::format("switch {} of level {} {}", at, level + 1, way),
                          levels[level].up_bytes_per_second});
      }
    }
  }
}

void FatTree::route(int from, int to, std::vector<int>& links) const {
  const int source = host_of_[static_cast<std::size_t>(from)];
  const int target = host_of_[static_cast<std::size_t>(to)];
  if (source == target) {
    links.push_back(3 * source + 2);
    return;
  }
  links.push_back(3 * source);
  for (const Tier& tier : tiers_) {
    if (source / tier.hosts == target / tier.hosts) break;
    links.push_back(tier.up + 2 * (source / tier.hosts));
    links.push_back(tier.up + 2 * (target / tier.hosts) + 1);
  }
  links.push_back(3 * target + 1);
}

}  // namespace trireme
