#include "cli/planned_network.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/planner.h"
#include "trireme/topology/stored_rates.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsualOfGpus = "ndr400-fat-tree";
constexpr const char* kUsual = "ethernet-10g";

std::vector<std::string> hosts_of_ranks(const std::vector<std::string>& nodes, int ranks_of_node) {
  std::vector<std::string> hosts;
  for (const std::string& node : nodes) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(ranks_of_node), node);
  }
  return hosts;
}

// `name` is that of `sources` for people.
JobNetwork job_network_of(FabricSources sources, const std::string& name, int ranks_of_node) {
  const std::string path = std::exchange(sources.network, "");
  std::optional<StoredRates> stored;
  if (!path.empty()) {
    stored = read_network_rates(read_small_file("the file of network rates", path), path);
    if (sources.empty()) {
      return job_network(*stored, path, hosts_of_ranks(stored->hosts, ranks_of_node));
    }
  }
  const Fabric fabric = read_cluster(sources, /*strict=*/true);
  const auto tells_rate = [](const Cable& cable) { return cable.bytes_per_second > 0.0; };
  if (!stored && std::ranges::none_of(fabric.cables(), tells_rate)) {
    throw ConfigError(fmt::format(
        "{}: tells no rate of any link: name a file of rates beside it ({},rates.json), which "
        "trireme topo probe writes",
        name, name));
  }
  std::string remark;  // of hosts that it lacks: none
  JobNetwork network =
      job_network(fabric, name, hosts_of_ranks(hosts_of(fabric), ranks_of_node), remark);
  if (!stored) return network;
  const std::string why_not = take_rates(network, *stored);
  if (!why_not.empty()) throw ConfigError(fmt::format("{}: {}", path, why_not));
  return network;
}

// GPUs of a node have the links of the kind of node that is usual for them.
plan::NetworkDescription network_of_files(const std::string& files,
                                          const plan::DeviceDescription& device,
                                          int ranks_of_node) {
  const FabricSources sources = sources_in(files);
  plan::NetworkDescription network =
      plan::described_network(job_network_of(sources, files, ranks_of_node), ranks_of_node,
                              device.gpu, /*measured=*/!sources.network.empty());
  network.name = files;
  const std::string node = device.gpu ? plan::usual_node(device.name) : "";
  if (!node.empty()) network.node_links = plan::known_network(node, ranks_of_node, true).node_links;
  return network;
}

}  // namespace

plan::NetworkDescription planned_network(const std::string& name,
                                         const plan::DeviceDescription& device, int ranks_of_node) {
  const std::string first = name.substr(0, name.find(','));
  if (!first.empty() && look_ahead(first, ExitStatus::kUsage).is_file()) {
    return network_of_files(name, device, ranks_of_node);
  }
  std::string known = name;
  if (known.empty() && device.gpu) known = plan::usual_node(device.name);
  if (known.empty()) known = device.gpu ? kUsualOfGpus : kUsual;
  try {
    return plan::known_network(known, ranks_of_node, device.gpu);
  } catch (const ConfigError& error) {
    if (first.find_first_of("/.") == std::string::npos) throw;
    throw ConfigError(fmt::format("{} is no file, and {}", shown(first), error.what()));
  }
}

}  // namespace trireme::cli
