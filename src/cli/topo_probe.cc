// trireme topo probe: measures the network between the ranks of a job.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/io/output_file.h"
#include "trireme/setup/communication.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/planner.h"
#include "trireme/topology/probe.h"
#include "trireme/topology/stored_rates.h"

#include "cli/outputs.h"
#include "cli/topo.h"

namespace trireme::cli {
namespace {

// A remark names the hosts that the fabric lacks.
RankBlocks blocks_of(const Fabric& fabric, const std::vector<std::string>& hosts,
                     std::vector<std::string>& remarks) {
  std::vector<std::string> missing;
  RankBlocks blocks = blocks_in(fabric, hosts, missing);
  if (!missing.empty()) {
    remarks.push_back(
        fmt::format("the place of {} in the network is not known: only nodes are told apart "
                    "(--slurm and --dump read descriptions)",
                    shown(node_list(std::move(missing)))));
  }
  return blocks;
}

// Collective. Finds the places as the flags describe the network, or else as Slurm does.
PlacesOfRanks read_places(Runtime& runtime, const TopoArguments& given) {
  FabricSources sources = sources_of(given);
  sources.network.clear();  // where to store what is measured
  const bool is_named = !sources.empty();
  if (!is_named) sources.addresses = slurm_addresses(runtime);
  return places_of_ranks(runtime, sources, is_named);
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

void print_stored(const std::string& path) {
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
      write_output(path, write_network_rates(stored));
      return print_stored(path);
    } catch (const RunFolderError& fault) {
      why = error ? fmt::format("{}: {}", path, error.message()) : fault.what();
    }
  }
  print_line(fmt::format("not stored: {}; --network names a file", why));
}

}  // namespace

PlacesOfRanks places_of_ranks(Runtime& runtime, const FabricSources& sources, bool strict) {
  std::optional<Fabric> fabric;
  const Json read = Json::parse(runtime.world().read_once([&] {
    fabric = read_cluster(sources, strict);
    std::vector<std::string> lines = fabric->remarks();
    const CommunicatorPlan plan{
        .blocks = std::make_shared<const RankBlocks>(blocks_of(*fabric, runtime.hosts(), lines))};
    Json texts = Json::array();
    for (const std::string& line : lines) texts.push_back(line);
    return Json::object({{"blocks", plan_to_text(plan)}, {"remarks", std::move(texts)}}).dump();
  }));
  std::vector<std::string> remarks;
  for (const Json& remark : read.at("remarks").items()) remarks.push_back(remark.text());
  return {*plan_from_text(read.at("blocks").text()).blocks, std::move(remarks), std::move(fabric)};
}

ExitStatus topo_probe(Runtime& runtime, const TopoArguments& given) {
  if (runtime.size() < 2) {
    throw ConfigError(
        "topo probe measures between ranks: start several, with srun --mpi=pmi2 or mpiexec");
  }
  NamedOutput json(runtime, given.json), rates(runtime, given.network);
  const PlacesOfRanks places = read_places(runtime, given);
  const RankBlocks& blocks = places.blocks;
  const Stopwatch watch;
  const Probe probe = probe_network(runtime.world(), blocks, runtime.hosts());
  const double seconds = watch.seconds();
  if (runtime.rank() == 0) {
    for (const std::string& remark : places.remarks) print_line(remark);
    print(probe, blocks, runtime.nodes(), seconds);
  }
  StoredRates stored = stored_of(probe, blocks, runtime.hosts());
  if (given.collectives) stored.collectives = time_collectives(runtime, stored);
  runtime.world().read_once([&] {
    json.write_whole(json_of(probe, stored, seconds));
    if (rates.is_there()) {
      rates.write_whole(write_network_rates(stored));
      print_stored(given.network);
    } else {
      store_as_usual(stored, runtime.nodes());
    }
    return std::string();
  });
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
