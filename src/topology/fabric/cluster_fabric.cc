#include "trireme/topology/cluster_fabric.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
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
                          sources_.topology, included_files());
      });
    }
    if (!sources_.addresses.empty()) add([&] { return fabric_of_addresses(sources_.addresses); });
    if (!sources_.dump.empty()) {
      add([&] {
        return read_ibnetdiscover(read_small_file(sources_.dump_key, sources_.dump, kMostMib),
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
  // Files are in the folder of the first one, as for Slurm in that of slurm.conf.
  ReadIncluded included_files() const {
    return [folder = std::filesystem::path(sources_.slurm).parent_path(), left = kMostMib << 20](
               const std::string& where, const std::string& file) mutable {
      std::string text = read_small_file(where, (folder / file).string(), kMostMib);
      if (text.size() > left) {
        throw ConfigError(
            fmt::format("{} {}: more than {} MiB in all", where, shown(file), kMostMib));
      }
      left -= text.size();
      return text;
    };
  }

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

// The first word of a line, in lower case, up to a space or an equals sign.
std::string first_word(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  line.remove_prefix(begin);
  std::string word(line.substr(0, line.find_first_of(" \t\r=")));
  std::ranges::transform(word, word.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

// Which path of the sources a file of this kind is.
std::string& path_of(FabricSources& sources, DescriptionKind kind) {
  if (kind == DescriptionKind::kRates) return sources.network;
  return kind == DescriptionKind::kDump ? sources.dump : sources.slurm;
}

const char* words_for(DescriptionKind kind) {
  if (kind == DescriptionKind::kRates) return "hold measured rates";
  return kind == DescriptionKind::kDump ? "are dumps of ibnetdiscover"
                                        : "are descriptions of Slurm's";
}

// A file that cannot be seen may be there: whoever reads it says why it cannot be read.
bool may_be_file(const std::string& path) {
  try {
    return look_ahead(path, ExitStatus::kUsage).is_file();
  } catch (const ConfigError&) {
    return true;
  }
}

}  // namespace

FabricSources find_fabric_sources() {
  FabricSources found;
  if (auto address = own_address()) found.addresses.push_back(std::move(*address));
  std::error_code ignored;
  std::vector<std::filesystem::path> folders = {"/etc/slurm"};
  if (const std::string file = environment("SLURM_CONF"); !file.empty()) {
    folders.insert(folders.begin(), std::filesystem::path(file).parent_path());
  }
  for (const std::filesystem::path& folder : folders) {
    for (const char* name : {"topology.yaml", "topology.conf"}) {
      const std::filesystem::path path = folder / name;
      if (found.slurm.empty() && may_be_file(path.string())) found.slurm = path.string();
    }
  }
  found.dump = environment("TRIREME_FABRIC");
  found.dump_key = "TRIREME_FABRIC";
  if (!std::filesystem::is_empty("/sys/class/infiniband", ignored) && !ignored)
    found.sysfs = "/sys";
  return found;
}

std::optional<DescriptionKind> kind_of_description(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') return DescriptionKind::kRates;
  if (is_slurm_yaml(text)) return DescriptionKind::kSlurm;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string word = first_word(line);
    if (word == "switch" || word == "ca") return DescriptionKind::kDump;
    const bool is_slurm = word == "switchname" || word == "blockname" || word == "include";
    if (is_slurm) return DescriptionKind::kSlurm;
  }
  return {};
}

FabricSources sources_in(const std::string& files) {
  FabricSources sources;
  std::string_view rest = files;
  while (true) {
    const std::string path(rest.substr(0, rest.find(',')));
    const auto kind =
        kind_of_description(read_small_file("the description of the network", path, kMostMib));
    if (!kind) {
      throw ConfigError(
          fmt::format("{}: describes no network: expected rates that trireme topo probe has "
                      "stored, a dump of ibnetdiscover, or Slurm's topology.conf, topology.yaml or "
                      "output of scontrol show topology",
                      shown(path)));
    }
    std::string& place = path_of(sources, *kind);
    if (!place.empty()) {
      throw ConfigError(fmt::format("{} and {} both {}: name one of them", shown(place),
                                    shown(path), words_for(*kind)));
    }
    place = path;
    if (path.size() == rest.size()) return sources;
    rest.remove_prefix(path.size() + 1);
  }
}

Fabric read_cluster(const FabricSources& sources, bool strict) {
  return ClusterReader(sources, strict).read();
}

Fabric read_slurm(std::string_view text, const std::string& origin, const std::string& topology,
                  const ReadIncluded& read_included) {
  return is_slurm_yaml(text) ? read_slurm_yaml(text, origin, topology)
                             : read_slurm_topology(text, origin, read_included);
}

}  // namespace trireme
