// One fabric from all that is known of a cluster.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/topology/fabric.h"
#include "trireme/topology/local_ports.h"
#include "trireme/topology/stored_rates.h"

namespace trireme {

// Where to read. Files are paths; empty: none.
struct FabricSources {
  // SLURM_TOPOLOGY_ADDR and SLURM_TOPOLOGY_ADDR_PATTERN of tasks.
  std::vector<std::pair<std::string, std::string>> addresses;
  std::string slurm;     // topology.conf, topology.yaml or the output of scontrol show topology
  std::string topology;  // which one of topology.yaml; empty: the cluster's default
  std::string dump;      // the output of ibnetdiscover
  std::string dump_key = "--dump";  // what has named the dump, for messages
  std::string sysfs;                // the root of sysfs: "/sys"
  std::string host;                 // the name of this host, whose ports sysfs tells
  std::string network;              // rates that `trireme topo probe` has stored

  bool empty() const {
    return addresses.empty() && slurm.empty() && dump.empty() && sysfs.empty() && network.empty();
  }
};

// Returns what this process finds: the address of its task in the environment, topology.yaml or
// topology.conf beside the file that SLURM_CONF names or in /etc/slurm, the dump that
// TRIREME_FABRIC names, and /sys if it has InfiniBand ports.
FabricSources find_fabric_sources();

// What a file that describes a network holds.
enum class DescriptionKind { kRates, kDump, kSlurm };
// Tells by the first line that only one kind has. Returns nothing if no line is of any.
std::optional<DescriptionKind> kind_of_description(std::string_view text);
// Returns the sources in a list of files, as in "fabric.txt,topology.conf": at most one of each
// kind. Throws ConfigError if one cannot be read, is of no kind, or two are of the same one.
FabricSources sources_in(const std::string& files);

// Reads the sources and merges them in the order of FabricSource: of two that tell different things
// the earlier one counts, and a remark names both. A source that has nothing to do with those
// before it, or that cannot be read, is left out. The latter is a remark, or with `strict` a
// ConfigError. A fabric without vertices is the answer where nothing is known.
Fabric read_cluster(const FabricSources& sources, bool strict);

// Returns the vertex of each host that `names` lists, as match_nodes finds them (node_names.h).
// Adds those that the fabric lacks, and appends their names to `missing`, each once. Levels are not
// found anew.
std::vector<int> add_nodes(Fabric& fabric, const std::vector<std::string>& names,
                           std::vector<std::string>* missing = nullptr);
// Returns the host of that name, as match_nodes finds it.
std::optional<int> find_node(const Fabric& fabric, const std::string& name);

// Whether a cable of a host is that of this port of the host, by adapter and number.
bool leads_to(const Cable& cable, const LocalPort& port);

// Returns the host that has the adapter of one of these ports, by GUID, and is called after a GUID
// for want of a name.
std::optional<int> host_of_ports(const Fabric& fabric, const std::vector<LocalPort>& ports);

// The steps of read_cluster. Levels are found in each argument and in the result.
//
// `trusted` decides which hosts share a leaf, `detailed` has the cables. Hosts are matched by
// match_nodes.
Fabric merge_fabrics(Fabric trusted, Fabric detailed);
// Adds the rates of a host's ports, and a switch for their subnet if the fabric has no cable of the
// host.
void merge_ports(Fabric& fabric, const std::string& host, const std::vector<LocalPort>& ports);
// Returns the hosts that took part in a measurement, below a switch for each block of each tier.
Fabric fabric_of_rates(const StoredRates& stored);
// Gives cables without a rate their share of what `rates` says of hosts and of blocks. `from` says
// whether these were measured or assumed.
void merge_rates(Fabric& fabric, const NetworkRates& rates,
                 FabricSource from = FabricSource::kMeasured);

// Reads a text that is one of the descriptions that Slurm has.
Fabric read_slurm(std::string_view text, const std::string& origin, const std::string& topology,
                  const ReadIncluded& read_included = {});

}  // namespace trireme
