// What people read of a network's links.
#pragma once

#include <string>

#include <fmt/format.h>

namespace trireme {

enum class LinkWay { kOut, kInto };

// "out of n1".
inline std::string link_of_host(const std::string& host, LinkWay way) {
  return (way == LinkWay::kOut ? "out of " : "into ") + host;
}

// The links between a block of hosts, named by its first one, and the rest of the network: "out of
// the leaf switch of n1"; above the leaves "out of the switches of level 2 above n1".
inline std::string link_of_block(const std::string& host, int tier, LinkWay way) {
  return link_of_host(tier == 1 ? "the leaf switch of " + host
                                : fmt::format("the switches of level {} above {}", tier, host),
                      way);
}

}  // namespace trireme
