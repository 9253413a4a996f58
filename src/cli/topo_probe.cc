// trireme topo probe: measures the network between the ranks of a job.
#include <algorithm>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/node_names.h"
#include "trireme/base/small_file.h"
#include "trireme/io/whole_file.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/network.h"
#include "trireme/topology/probe.h"
#include "trireme/topology/stored_rates.h"
#include "trireme/train/communication.h"

#include "cli/topo.h"

namespace trireme::cli {
namespace {

// Collective. Rank 0 reads the file.
Fabric fabric_of(Runtime& runtime, const TopoArguments& given) {
  constexpr std::size_t kMostMib = 256;
  const bool dump = !given.dump.empty();
  if (!dump && given.slurm.empty()) return fabric_by_slurm(slurm_addresses(runtime));
  const std::string& path = dump ? given.dump : given.slurm;
  const std::string text = runtime.world().read_once(
      [&] { return read_small_file(dump ? "--dump" : "--slurm", path, kMostMib); });
  Fabric fabric = dump ? read_ibnetdiscover(text, path) : read_slurm(text, path, given.topology);
  fabric.find_levels();
  return fabric;
}

// The blocks of the world's ranks; of nodes alone where the fabric does not know all hosts.
RankBlocks blocks_of(Fabric fabric, const std::vector<std::string>& hosts,
                     std::vector<std::string>& remarks) {
  std::vector<std::string> names;
  std::vector<int> nodes;
  for (const std::string& host : hosts) {
    const auto found = std::ranges::find(names, host);
    nodes.push_back(static_cast<int>(found - names.begin()));
    if (found == names.end()) names.push_back(host);
  }
  std::vector<std::string> missing;
  const std::vector<int> vertices = add_nodes(fabric, hosts, &missing);
  std::vector<std::vector<int>> tiers = {std::move(nodes)};
  if (!missing.empty()) {
    remarks.push_back(
        fmt::format("the place of {} in the network is not known: only nodes are told apart "
                    "(--slurm and --dump read descriptions)",
                    node_list(std::move(missing))));
  } else {
    const TreeNetwork network(fabric, vertices, {});
    for (int tier = 1; tier <= network.tiers(); ++tier) {
      std::vector<int>& blocks = tiers.emplace_back();
      for (int rank = 0; rank < network.ranks(); ++rank) {
        blocks.push_back(network.block(tier, rank));
      }
    }
  }
  return RankBlocks(static_cast<int>(hosts.size()), std::move(tiers));
}

// Hosts and their blocks, as many tiers as distances were measured.
StoredRates stored_of(const Probe& probe, const RankBlocks& blocks,
                      const std::vector<std::string>& hosts) {
  StoredRates stored{.rates = probe.rates,
                     .cluster = environment("SLURM_CLUSTER_NAME"),
                     .measured = static_cast<std::int64_t>(std::time(nullptr)),
                     .hosts = {},
                     .tiers = {},
                     .collectives = {}};
  const std::size_t distances = probe.rates.distances.size();
  stored.tiers.resize(std::max<std::size_t>(distances, 2) - 2);
  std::vector<bool> seen(static_cast<std::size_t>(blocks.blocks(0)));
  for (int rank = 0; rank < blocks.ranks(); ++rank) {
    const auto node = static_cast<std::size_t>(blocks.block(0, rank));
    if (seen[node]) continue;
    seen[node] = true;
    stored.hosts.push_back(hosts[static_cast<std::size_t>(rank)]);
    for (std::size_t tier = 0; tier < stored.tiers.size(); ++tier) {
      stored.tiers[tier].push_back(blocks.block(static_cast<int>(tier) + 1, rank));
    }
  }
  return stored;
}

std::string json_of(const Probe& probe, const StoredRates& stored, double seconds) {
  Json all = Json::parse(write_network_rates(stored));
  Json streams = Json::array(), slow = Json::array();
  for (const MeasuredStream& stream : probe.streams) {
    streams.push_back(Json::object({{"distance", stream.distance},
                                    {"from", stored.hosts[static_cast<std::size_t>(stream.from)]},
                                    {"to", stored.hosts[static_cast<std::size_t>(stream.to)]},
                                    {"rate", stream.rate}}));
  }
  for (const SlowLink& each : probe.slow) {
    slow.push_back(
        Json::object({{"where", each.where}, {"rate", each.rate}, {"usual", each.usual}}));
  }
  all["streams"] = std::move(streams);
  all["slow"] = std::move(slow);
  all["seconds"] = seconds;
  return all.dump(1) + "\n";
}

std::string name_of_distance(std::size_t distance) {
  if (distance == 0) return "within a node";
  if (distance == 1) return "same leaf";
  return distance == 2 ? "across leaves" : fmt::format("{} switches up", distance);
}

std::string megabytes(double rate) {
  return rate > 0.0 ? fmt::format("{:.1f}", rate * 1e-6) : "-";
}

void print(const Probe& probe, const RankBlocks& blocks, int nodes, double seconds) {
  print_line(fmt::format("{} ranks on {} nodes, {} tiers of blocks, {:.1f} s", blocks.ranks(),
                         nodes, blocks.tiers(), seconds));
  print_line(fmt::format("{:<16}{:>12}{:>12}{:>14}{:>14}", "distance", "latency us", "flow MB/s",
                         "node MB/s", "block MB/s"));
  const bool several = blocks.tiers() > 1;
  for (std::size_t i = 0; i < probe.rates.distances.size(); ++i) {
    const DistanceRates& rates = probe.rates.distances[i];
    print_line(fmt::format("{:<16}{:>12.1f}{:>12}{:>14}{:>14}",
                           i == 1 && !several ? "across nodes" : name_of_distance(i),
                           rates.latency * 1e6, megabytes(rates.flow), megabytes(rates.host),
                           megabytes(rates.block)));
  }
  for (const SlowLink& slow : probe.slow) {
    print_line(fmt::format("slow: {} at {} MB/s; usual is {}", slow.where, megabytes(slow.rate),
                           megabytes(slow.usual)));
  }
  if (probe.slow.empty()) print_line("no link is slower than others like it");
}

void write_rates(const std::string& path, const StoredRates& stored) {
  write_whole_file(path, write_network_rates(stored));
  print_line("stored in " + path);
}

// Stores the rates where jobs look for those of their cluster. That is for convenience, so it does
// not fail the probe.
void store_as_usual(const StoredRates& stored, int nodes) {
  const std::string path = usual_rates_path();
  std::string why;
  if (path.empty()) why = "there is no home folder";
  if (nodes == 1) why = "these are the rates of one node alone";
  if (why.empty()) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    try {
      return write_rates(path, stored);
    } catch (const RunFolderError& fault) {
      why = error ? fmt::format("{}: {}", path, error.message()) : fault.what();
    }
  }
  print_line(fmt::format("not stored: {}; --network names a file", why));
}

}  // namespace

RankBlocks blocks_by_slurm(Runtime& runtime, std::vector<std::string>& remarks) {
  return blocks_of(fabric_by_slurm(slurm_addresses(runtime)), runtime.hosts(), remarks);
}

ExitStatus topo_probe(Runtime& runtime, const TopoArguments& given) {
  if (runtime.size() < 2) {
    throw ConfigError(
        "topo probe measures between ranks: start several, with srun --mpi=pmi2 or mpiexec");
  }
  std::vector<std::string> remarks;
  const Fabric fabric = fabric_of(runtime, given);
  const RankBlocks blocks = blocks_of(fabric, runtime.hosts(), remarks);
  const Stopwatch watch;
  const Probe probe = probe_network(runtime.world(), blocks, runtime.hosts());
  const double seconds = watch.seconds();
  if (runtime.rank() == 0) {
    for (const std::string& remark : fabric.remarks()) print_line(remark);
    for (const std::string& remark : remarks) print_line(remark);
    print(probe, blocks, runtime.nodes(), seconds);
  }
  runtime.world().read_once([&] {
    const StoredRates stored = stored_of(probe, blocks, runtime.hosts());
    if (!given.json.empty()) write_whole_file(given.json, json_of(probe, stored, seconds));
    if (given.network.empty()) {
      store_as_usual(stored, runtime.nodes());
    } else {
      write_rates(given.network, stored);
    }
    return std::string();
  });
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
