#include "trireme/train/communication.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/small_file.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/topology/cluster_fabric.h"

namespace trireme {
namespace {

using Addresses = std::vector<std::pair<std::string, std::string>>;

// Only rank 0 calls this. Returns nothing if the file does not suit the job; a remark says why.
std::optional<JobNetwork> from_file(const std::string& path, const std::vector<std::string>& hosts,
                                    std::vector<std::string>& remarks) {
  const StoredRates stored =
      read_network_rates(read_small_file("the file of network rates", path), path);
  const std::string stale = why_stale(stored, hosts);
  if (stale.empty()) return job_network(stored, path, hosts);
  remarks.push_back(
      fmt::format("{}: {}; not used, run trireme topo probe on these nodes", path, stale));
  return {};
}

std::optional<JobNetwork> automatic(Addresses addresses, const std::vector<std::string>& hosts,
                                    std::vector<std::string>& remarks) {
  const std::string path = usual_rates_path();
  std::error_code ignored;
  // A path that somebody has set must be good; the usual one may not be there yet.
  const bool is_set = !environment("TRIREME_NETWORK").empty();
  const auto kind = std::filesystem::status(path, ignored).type();
  if (!path.empty() && (is_set || kind != std::filesystem::file_type::not_found)) {
    try {
      if (auto network = from_file(path, hosts, remarks)) return network;
    } catch (const ConfigError& error) {
      remarks.push_back(fmt::format("{}; not used", error.what()));
    }
  }
  FabricSources sources = find_fabric_sources();
  sources.addresses = std::move(addresses);
  // The ports of this host alone do not tell where the others are.
  const bool tells_places = !sources.slurm.empty() || !sources.addresses.empty();
  const Fabric fabric = read_cluster(sources, /*strict=*/false);
  const bool known = !fabric.vertices().empty();
  std::string remark;
  JobNetwork network = job_network(fabric, "the fabric's description", hosts, remark);
  if (!known) network.source = "assumed rates";
  if (known && tells_places && !remark.empty()) remarks.push_back(std::move(remark));
  return network;
}

}  // namespace

Addresses slurm_addresses(Runtime& runtime) {
  std::vector<std::string> mine;
  if (runtime.local_rank() == 0) {
    mine = {environment("SLURM_TOPOLOGY_ADDR"), environment("SLURM_TOPOLOGY_ADDR_PATTERN")};
  }
  Addresses addresses;
  for (auto& lines : gather_lines(runtime.world(), mine)) {
    if (lines.size() == 2 && !lines[0].empty()) {
      addresses.emplace_back(std::move(lines[0]), std::move(lines[1]));
    }
  }
  return addresses;
}

Fabric fabric_by_slurm(const Addresses& addresses) {
  try {
    return fabric_of_addresses(addresses);
  } catch (const ConfigError&) {
    return Fabric(FabricSource::kSlurm);
  }
}

NetworkOfJob read_job_network(Runtime& runtime, const std::string& key) {
  const bool is_auto = key == "auto";
  if (key == "none" || runtime.size() == 1 || (is_auto && runtime.nodes() == 1)) return {};
  const Addresses addresses = is_auto ? slurm_addresses(runtime) : Addresses();
  const std::string text = runtime.world().read_once([&] {
    std::vector<std::string> remarks;
    const auto network = is_auto ? automatic(addresses, runtime.hosts(), remarks)
                                 : from_file(key, runtime.hosts(), remarks);
    Json lines = Json::array();
    for (const std::string& remark : remarks) lines.push_back(remark);
    Json object = Json::object({{"remarks", std::move(lines)}});
    if (network) object["network"] = job_network_to_text(*network);
    return object.dump();
  });
  const Json object = Json::parse(text);
  NetworkOfJob result;
  for (const Json& remark : object.at("remarks").items()) result.remarks.push_back(remark.text());
  if (const Json* network = object.find("network")) {
    result.network = job_network_from_text(network->text());
  }
  return result;
}

}  // namespace trireme
