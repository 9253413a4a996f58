#include "trireme/plan/nccl_memory.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include <fmt/format.h>

#include "trireme/base/text.h"

namespace trireme::plan {
namespace {

// Bytes of a connection's buffers: NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE and NCCL_BUFFSIZE where
// nobody sets them, and the page in which memory that others map is allocated.
constexpr std::int64_t kLl = 8 * 512 * 8 * 16, kLl128 = 120 * 640 * 8 * 8;
constexpr std::int64_t kSimple = std::int64_t{4} << 20, kPage = std::int64_t{2} << 20;

constexpr std::int64_t in_pages(std::int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}
// Within a node a receiver has all buffers, and a sender a page of flags. Over a network both have
// them on their GPUs, but the sender's LL, which is on its host.
struct Connection {
  std::int64_t receiving, sending;
};
constexpr Connection kInNode{in_pages(kLl + kLl128 + kSimple), kPage};
constexpr Connection kByNetwork{in_pages(kLl + kLl128 + kSimple), in_pages(kLl128 + kSimple)};
// What all messages over a network share in a channel, each way.
constexpr std::int64_t kSharedByNetwork = 16 * (std::int64_t{128} << 10);

constexpr int kUsualChannels = 24;        // of GPUs with NVLink, 8 on a switch
constexpr int kUsualChannelsPerPeer = 2;  // over a network
constexpr int kTreePeers = 2;             // each way, a parent and children

int channels_of(const NcclSetting& setting) {
  return std::max(setting.min_channels.value_or(1),
                  std::min(kUsualChannels, setting.max_channels.value_or(kUsualChannels)));
}

// One communicator of a rank.
struct Use {
  bool collective = false, sums = false;
  std::set<int> members, sends_to, receives_from;  // ranks of the world
};

class Estimate {
 public:
  Estimate(int rank, const NcclSetting& setting)
      : rank_(rank), setting_(setting), channels_(channels_of(setting)) {}

  std::int64_t bytes(const Use& use) const {
    std::int64_t sum = 0;
    if (use.collective) {
      const int trees = use.sums && use.members.size() > 2 ? kTreePeers : 0;
      const Connection& one = on_one_node_each(use.members) ? kByNetwork : kInNode;
      sum += channels_ * (1 + trees) * (one.receiving + one.sending);
    }
    bool by_network = false;
    const auto add = [&](const std::set<int>& peers, std::int64_t in_node) {
      for (const int peer : peers) {
        if (node_of(peer) == node_of(rank_)) {
          sum += std::bit_ceil(static_cast<unsigned>(channels_)) * in_node;
        } else {
          sum += setting_.channels_per_peer.value_or(kUsualChannelsPerPeer) * kPage;
          by_network = true;
        }
      }
    };
    add(use.receives_from, kInNode.receiving);
    add(use.sends_to, kInNode.sending);
    if (by_network) sum += 2 * channels_ * kSharedByNetwork;
    return sum;
  }

 private:
  int node_of(int rank) const { return rank / setting_.ranks_of_node; }
  bool on_one_node_each(const std::set<int>& ranks) const {
    std::set<int> nodes;
    for (const int rank : ranks) nodes.insert(node_of(rank));
    return nodes.size() == ranks.size();
  }

  const int rank_;
  const NcclSetting& setting_;
  const int channels_;
};

}  // namespace

NcclMemory nccl_memory(std::span<const DryTraffic> traffic, int rank, const NcclSetting& setting) {
  std::map<int, Use> uses;  // by lane
  for (const DryTraffic& one : traffic) {
    if (!one.on_gpu) continue;
    Use& use = uses[one.lane];
    if (one.operation == "send") {
      use.sends_to.insert(one.ranks.front());
    } else if (one.operation == "receive") {
      use.receives_from.insert(one.ranks.front());
    } else if (one.operation == "all_to_all") {
      for (const int peer : one.ranks) {
        if (peer == rank) continue;
        use.sends_to.insert(peer);
        use.receives_from.insert(peer);
      }
    } else {
      use.collective = true;
      use.sums = use.sums || one.operation == "all_reduce";
      use.members.insert(one.ranks.begin(), one.ranks.end());
    }
  }
  NcclMemory memory{.communicators = static_cast<int>(uses.size()),
                    .channels = channels_of(setting),
                    .ranks_of_node = setting.ranks_of_node};
  const Estimate estimate(rank, setting);
  for (const auto& [lane, use] : uses) memory.bytes += estimate.bytes(use);
  return memory;
}

std::string words_on(const NcclMemory& memory) {
  return fmt::format(
      "NCCL takes about {} MiB of a GPU besides (an estimate: {}, {} channels, NCCL's usual "
      "buffers, {} ranks a node, with NVLink)",
      (memory.bytes + (1 << 20) - 1) >> 20, counted(memory.communicators, "communicator"),
      memory.channels, memory.ranks_of_node);
}

}  // namespace trireme::plan
