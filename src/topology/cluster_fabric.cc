#include "trireme/topology/cluster_fabric.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/comm/launcher.h"

namespace trireme {
namespace {

constexpr std::size_t kMostMib = 64;  // a dump of 10,000 nodes has less than 10

// Reads sources one after the other into one fabric.
class ClusterReader {
 public:
  ClusterReader(const FabricSources& sources, bool strict) : sources_(sources), strict_(strict) {}

  Fabric read() {
    if (!sources_.slurm.empty()) {
      add([&] {
        return read_slurm(read_small_file("--slurm", sources_.slurm, kMostMib), sources_.slurm,
                          sources_.topology);
      });
    }
    if (!sources_.addresses.empty()) add([&] { return fabric_of_addresses(sources_.addresses); });
    if (!sources_.dump.empty()) {
      add([&] {
        return read_ibnetdiscover(read_small_file("--dump", sources_.dump, kMostMib),
                                  sources_.dump);
      });
    }
    if (!sources_.network.empty()) {
      add_if_good([&] {
        measured_ = read_network_rates(read_small_file("--network", sources_.network, kMostMib),
                                       sources_.network);
      });
    }
    Fabric fabric = fabric_     ? std::move(*fabric_)
                    : measured_ ? fabric_of_rates(*measured_)
                                : Fabric(FabricSource::kSysfs);
    if (!sources_.sysfs.empty()) add_ports(fabric);
    if (measured_) merge_rates(fabric, measured_->rates);
    for (const std::string& fault : faults_) fabric.remark(fault);
    return fabric;
  }

 private:
  void add_ports(Fabric& fabric) {
    const std::string host = sources_.host.empty() ? node_name() : sources_.host;
    const std::vector<LocalPort> ports = read_local_ports(sources_.sysfs);
    if (!ports.empty()) merge_ports(fabric, host, ports);
    if (ports.empty() && strict_) {
      fabric.remark(fmt::format("{}: no InfiniBand port is there", shown(sources_.sysfs)));
    }
  }

  template <class Read>
  void add(const Read& read) {
    add_if_good([&] {
      Fabric next = read();
      if (!fabric_) {
        fabric_ = std::move(next);
      } else if (fabric_->source() == next.source()) {
        merge_addresses(next);
      } else {
        fabric_ = merge_fabrics(std::move(*fabric_), std::move(next));
      }
    });
  }

  template <class Add>
  void add_if_good(const Add& add) {
    try {
      add();
    } catch (const ConfigError& error) {
      if (strict_) throw;
      faults_.push_back(fmt::format("{}; it is left out", error.what()));
    }
  }

  // A file of Slurm's describes all hosts; the addresses of tasks add those that it lacks.
  void merge_addresses(const Fabric& addresses) {
    const bool knows = std::ranges::any_of(addresses.vertices(), [&](const FabricVertex& vertex) {
      return !vertex.is_switch && fabric_->host(vertex.name);
    });
    if (knows) return;
    fabric_->remark("this job's hosts are not in Slurm's file; their addresses count instead");
    const std::vector<std::string> remarks = fabric_->remarks();
    fabric_ = addresses;
    for (const std::string& remark : remarks) fabric_->remark(remark);
  }

  const FabricSources& sources_;
  bool strict_;
  std::optional<Fabric> fabric_;
  std::optional<StoredRates> measured_;
  std::vector<std::string> faults_;
};

}  // namespace

FabricSources find_fabric_sources() {
  FabricSources found;
  if (auto address = own_address()) found.addresses.push_back(std::move(*address));
  std::error_code ignored;
  for (const char* path : {"/etc/slurm/topology.yaml", "/etc/slurm/topology.conf"}) {
    if (found.slurm.empty() && std::filesystem::is_regular_file(path, ignored)) found.slurm = path;
  }
  if (!std::filesystem::is_empty("/sys/class/infiniband", ignored) && !ignored)
    found.sysfs = "/sys";
  return found;
}

Fabric read_cluster(const FabricSources& sources, bool strict) {
  return ClusterReader(sources, strict).read();
}

Fabric read_slurm(std::string_view text, const std::string& origin, const std::string& topology) {
  return is_slurm_yaml(text) ? read_slurm_yaml(text, origin, topology)
                             : read_slurm_topology(text, origin);
}

}  // namespace trireme
