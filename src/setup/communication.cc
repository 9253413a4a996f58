#include "trireme/setup/communication.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/topology/cluster_fabric.h"

namespace trireme {
namespace {

using Addresses = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kOwnDescription = "the cluster's description of its network";
constexpr std::size_t kMostRemarks = 5;  // on a description; topo show prints them all

// Only rank 0 calls this. There is no network if the rates do not suit the job; a remark says why.
void read_rates(const std::string& path, const std::vector<std::string>& hosts,
                NetworkOfJob& result) {
  const StoredRates stored =
      read_network_rates(read_small_file("the file of network rates", path), path);
  const std::string stale = why_stale(stored, hosts);
  if (stale.empty()) {
    result.network = job_network(stored, path, hosts);
    result.fabric = fabric_of_rates(stored);
    result.rates_are_measured = true;
    return;
  }
  result.remarks.push_back(
      fmt::format("{}: {}; not used, run trireme topo probe on these nodes", path, stale));
}

void take_remarks(const Fabric& fabric, std::vector<std::string>& remarks) {
  const std::vector<std::string>& all = fabric.remarks();
  const std::size_t taken = std::min(all.size(), kMostRemarks);
  remarks.insert(remarks.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(taken));
  if (taken < all.size()) {
    remarks.push_back(
        fmt::format("and {} remarks more, which trireme topo show prints", all.size() - taken));
  }
}

bool describes_all(const Fabric& fabric, const std::vector<std::string>& hosts) {
  std::vector<std::string> missing;
  Fabric copy = fabric;
  add_nodes(copy, hosts, &missing);
  return missing.empty();
}

bool describes_any(const Fabric& fabric, const std::vector<std::string>& hosts) {
  Fabric copy = fabric;
  const int known = static_cast<int>(fabric.vertices().size());
  return std::ranges::any_of(add_nodes(copy, hosts), [&](int vertex) { return vertex < known; });
}

std::string of_another_cluster(const std::string& origin, const std::vector<std::string>& hosts) {
  return fmt::format("{}: has none of the job's nodes, such as {}; not used", origin,
                     shown(hosts.front()));
}

// Only rank 0 calls this. Reads the files that the user has named. What a description says is taken
// where no rates are named, or these are stale.
void read_files(const std::string& files, const std::vector<std::string>& hosts,
                NetworkOfJob& result) {
  FabricSources sources = sources_in(files);
  const std::string rates = std::exchange(sources.network, "");
  if (!rates.empty()) read_rates(rates, hosts, result);
  if (sources.empty()) return;
  Fabric fabric = read_cluster(sources, /*strict=*/true);
  if (result.network) {
    if (describes_all(fabric, hosts)) result.fabric = std::move(fabric);
    return;
  }
  std::string origin = sources.dump;
  if (!sources.slurm.empty()) origin += (origin.empty() ? "" : ",") + sources.slurm;
  std::string remark;
  if (describes_any(fabric, hosts)) {
    result.network = job_network(fabric, origin, hosts, remark);
  } else {
    remark = of_another_cluster(origin, hosts);
  }
  if (!remark.empty()) result.remarks.push_back(std::move(remark));
  take_remarks(fabric, result.remarks);
  if (result.network) result.fabric = std::move(fabric);
}

// Only rank 0 calls this.
void find_network(Addresses addresses, const std::vector<std::string>& hosts,
                  NetworkOfJob& result) {
  std::vector<std::string>& remarks = result.remarks;
  const std::string path = usual_rates_path();
  // A path that somebody has set must be good; the usual one may not be there yet.
  const bool is_set = !environment("TRIREME_NETWORK").empty();
  if (!path.empty()) {
    try {
      if (is_set || look_ahead(path, ExitStatus::kUsage).is_there())
        read_rates(path, hosts, result);
    } catch (const ConfigError& error) {
      remarks.push_back(fmt::format("{}; not used", error.what()));
    }
  }
  FabricSources sources = find_fabric_sources();
  sources.addresses = std::move(addresses);
  if (result.network) {
    // The rates tell which blocks there are; a description knows the names of switches as well.
    const Fabric described = read_cluster(sources, /*strict=*/false);
    if (describes_all(described, hosts)) result.fabric = described;
    return;
  }
  // The ports of this host alone do not tell where the others are.
  const bool tells_places =
      !sources.slurm.empty() || !sources.dump.empty() || !sources.addresses.empty();
  result.fabric = read_cluster(sources, /*strict=*/false);
  take_remarks(*result.fabric, remarks);
  if (!result.fabric->vertices().empty() && !describes_any(*result.fabric, hosts)) {
    remarks.push_back(of_another_cluster(kOwnDescription, hosts));
    result.fabric = Fabric(FabricSource::kSysfs);
  }
  const bool known = !result.fabric->vertices().empty();
  std::string remark;
  result.network = job_network(*result.fabric, kOwnDescription, hosts, remark);
  if (!known) result.network->source = "no description of the network, usual speeds assumed";
  if (known && tells_places && !remark.empty()) remarks.push_back(std::move(remark));
}

// Some algorithms are named by comm.algorithms.
AlgorithmTable with_chosen(AlgorithmTable table, const std::vector<ChosenAlgorithm>& chosen) {
  for (const auto& [collective, algorithm] : chosen) {
    table = table.with(collective, 0, AlgorithmTable::kAnySize, algorithm,
                       /*ranks=*/1);  // all the same for any number
  }
  return table;
}

}  // namespace

std::vector<PlannedComm> planned_communicators(Runtime& runtime,
                                               const std::vector<Communicator*>& all) {
  std::vector<PlannedComm> result;
  for (Communicator* one : all) {
    const Runtime::PlannedCommunicator* made = nullptr;  // the last one of that name and size
    for (const Runtime::PlannedCommunicator& each : runtime.communicators()) {
      const bool fits = static_cast<int>(each.ranks.size()) == one->size();
      if (fits && each.name == one->name()) made = &each;
    }
    if (one->size() > 1 && made != nullptr) {
      result.push_back({one, made->name, made->ranks, made->plan});
    }
  }
  return result;
}

std::vector<PlannedComm> planned_communicators(Runtime& runtime, const parallel::Stage& stage) {
  std::vector<Communicator*> all = {&runtime.world()};
  std::ranges::copy(stage.grid().communicators(), std::back_inserter(all));
  std::ranges::copy(stage.communicators(), std::back_inserter(all));
  return planned_communicators(runtime, all);
}

AlgorithmTable algorithm_table(const Config::Comm& comm) {
  return with_chosen(comm.order == "any" ? AlgorithmTable::any_order() : AlgorithmTable(),
                     chosen_algorithms(comm));
}

void plan_communicators(Runtime& runtime, const NetworkOfJob& network, const Config::Comm& comm) {
  const bool any_order = comm.order == "any";
  const std::vector<ChosenAlgorithm> chosen = chosen_algorithms(comm);
  runtime.use_algorithms(algorithm_table(comm));
  if (!network.network) return;
  runtime.use_planner([planner = make_planner(*network.network, any_order), chosen](
                          const std::string& name, const std::vector<int>& ranks) {
    CommunicatorPlan plan = planner(name, ranks);
    plan.algorithms = with_chosen(std::move(plan.algorithms), chosen);
    return plan;
  });
}

Addresses slurm_addresses(Runtime& runtime) {
  std::vector<std::string> mine;
  if (runtime.local_rank() == 0) {
    if (auto address = own_address())
      mine = {std::move(address->first), std::move(address->second)};
  }
  Addresses addresses;
  for (auto& lines : gather_lines(runtime.world(), mine)) {
    if (lines.size() == 2) addresses.emplace_back(std::move(lines[0]), std::move(lines[1]));
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
  NetworkOfJob result;
  const std::string text = runtime.world().read_once([&] {
    if (is_auto) {
      find_network(addresses, runtime.hosts(), result);
    } else {
      read_files(key, runtime.hosts(), result);
    }
    Json lines = Json::array();
    for (const std::string& remark : result.remarks) lines.push_back(remark);
    Json object = Json::object({{"remarks", std::move(lines)}});
    if (result.network) object["network"] = job_network_to_text(*result.network);
    return object.dump();
  });
  const Json object = Json::parse(text);
  result.remarks.clear();
  for (const Json& remark : object.at("remarks").items()) result.remarks.push_back(remark.text());
  if (const Json* network = object.find("network")) {
    result.network = job_network_from_text(network->text());
  }
  return result;
}

}  // namespace trireme
