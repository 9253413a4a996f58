// What NCCL is told beyond what it finds out itself. The defaults leave NCCL as it is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct NcclTuning {
  // These hold for every communicator (ncclConfig_t; its names in parentheses). Empty: NCCL
  // decides.
  std::optional<int> min_channels, max_channels;  // (minCTAs, maxCTAs): each takes part of the GPU
  std::optional<int> channels_per_peer;           // on other nodes (nChannelsPerNetPeer, 2.28)
  std::optional<int> nvls_channels;               // of sums inside of NVSwitch (nvlsCTAs, 2.27)
  // What of the GPU communication takes: "efficiency": few channels; "zero": none where copy
  // engines can do it (2.28) (CTAPolicy, 2.27). Empty: whatever is fastest alone.
  std::string policy;
  std::optional<int> traffic_class;  // of the network (trafficClass)
  std::optional<bool> collnet;       // reductions inside of switches (collnetEnable, 2.27)
  std::string network;               // "IB", "Socket", or a plugin's name for it (netName)

  // The path of libtrireme_tuner.so; empty: no tuner.
  std::string plugin = {};
  // Returns the text of the plugin's table (src/topology/README.md) for a communicator, from its
  // name and its world ranks. Called on the communicator's first rank alone.
  std::function<std::string(const std::string& name, const std::vector<int>& world_ranks)> table =
      nullptr;
  // Called on each rank of a communicator with the table that it starts with. nullptr: nobody asks.
  std::function<void(const std::string& name, const std::string& text)> told = nullptr;
};

}  // namespace trireme
