#include "trireme/setup/nccl_keys.h"

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/installed_file.h"
#include "trireme/base/log.h"
#include "trireme/base/small_file.h"
#include "trireme/setup/communication.h"
#include "trireme/topology/nccl_costs.h"
#include "trireme/topology/nccl_table.h"
#include "trireme/topology/planner.h"
#include "trireme/topology/stored_rates.h"

namespace trireme {
namespace {

constexpr const char* kPlugin = "lib/trireme/libtrireme_tuner.so";
using MakeTable = decltype(NcclTuning::table);
using Hosts = std::vector<std::string>;

Hosts hosts_of(const Hosts& of_all, const std::vector<int>& ranks) {
  Hosts hosts;
  for (const int rank : ranks) hosts.push_back(of_all[static_cast<std::size_t>(rank)]);
  return hosts;
}

// Files of rates are JSON.
bool holds_rates(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{';
}

std::vector<NcclTable> tables_of(const std::string& text, const std::string& path) {
  std::string problem;
  auto tables = read_nccl_tables(text, problem);
  if (!tables) throw ConfigError(fmt::format("nccl.tuner {}: {}", path, problem));
  return std::move(*tables);
}

// All communicators get the user's table. Rank 0 says, once for each size, where it lacks one of
// its communicators.
MakeTable table_of_user(const std::string& path, const std::string& text, Hosts hosts, bool tells) {
  using Size = std::pair<std::size_t, std::size_t>;
  return [path, text, hosts = std::move(hosts), tells, tables = tables_of(text, path),
          told = std::make_shared<std::set<Size>>()](const std::string& name,
                                                     const std::vector<int>& ranks) {
    const Hosts all = hosts_of(hosts, ranks);
    const std::size_t nodes = std::set<std::string>(all.begin(), all.end()).size();
    const bool known = find_nccl_table(tables, ranks.size(), nodes) != nullptr;
    if (tells && !known && told->insert({ranks.size(), nodes}).second) {
      report_line(
          fmt::format("nccl.tuner {}: no table for {} ranks on {} node{} ({}): NCCL "
                      "chooses itself there",
                      path, ranks.size(), nodes, nodes == 1 ? "" : "s", name));
    }
    return text;
  };
}

// Returns nothing if the rates were measured on other nodes.
MakeTable table_of_rates(const std::string& path, const std::string& text, Hosts hosts,
                         bool tells) {
  const StoredRates stored = read_network_rates(text, path);
  if (const std::string why = why_stale(stored, hosts); !why.empty()) {
    if (tells) report_line(fmt::format("nccl.tuner {}: {}: NCCL chooses itself", path, why));
    return nullptr;
  }
  return [stored, hosts = std::move(hosts)](const std::string&, const std::vector<int>& ranks) {
    return nccl_table_text(stored, hosts_of(hosts, ranks));
  };
}

// Collective over the world. Returns nothing if the key gives no network.
MakeTable table_of_network(Runtime& runtime, const std::string& key) {
  std::optional<JobNetwork> network = read_job_network(runtime, key).network;
  if (!network) {
    if (runtime.nodes() > 1 && runtime.rank() == 0) {
      report_line(fmt::format(
          "nccl.tuner network: comm.network {} gives no network: NCCL chooses itself", key));
    }
    return nullptr;
  }
  return [network = std::move(*network)](const std::string&, const std::vector<int>& ranks) {
    return nccl_table_text(blocks_among(network.blocks, ranks), network.rates);
  };
}

}  // namespace

NcclTuning nccl_tuning(Runtime& runtime, const Config::Nccl& keys, const std::string& network) {
  NcclTuning tuning;
  tuning.min_channels = keys.min_channels;
  tuning.max_channels = keys.max_channels;
  tuning.channels_per_peer = keys.channels_per_peer;
  tuning.nvls_channels = keys.nvls_channels;
  if (keys.policy != "default") tuning.policy = keys.policy;
  tuning.traffic_class = keys.traffic_class;
  tuning.collnet = keys.collnet;
  tuning.network = keys.network.value_or("");
  if (keys.tuner == "off") return tuning;
  if (keys.tuner == "network") {
    tuning.table = table_of_network(runtime, network);
  } else {
    const std::string text =
        runtime.world().read_once([&] { return read_small_file("nccl.tuner", keys.tuner); });
    tuning.table = (holds_rates(text) ? table_of_rates : table_of_user)(
        keys.tuner, text, runtime.hosts(), runtime.rank() == 0);
  }
  if (tuning.table) tuning.plugin = find_near_program({kPlugin}).value_or(kPlugin).string();
  return tuning;
}

}  // namespace trireme
