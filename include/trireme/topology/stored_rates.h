// The file in which measured rates of a cluster's network are kept (src/topology/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/topology/network_rates.h"

namespace trireme {

// The time of a collective, measured on those hosts.
struct MeasuredCollective {
  Collective collective = Collective::kAllReduce;
  std::string algorithm;  // its name
  std::size_t bytes = 0;  // of the whole buffer
  int ranks = 0;
  double seconds = 0.0;
  bool operator==(const MeasuredCollective&) const = default;
};

struct StoredRates {
  NetworkRates rates;
  std::string cluster;             // as Slurm names it; empty: not known
  std::int64_t measured = 0;       // when: seconds since 1970
  std::vector<std::string> hosts;  // that took part
  // The number of each host's block in tier 1, then in tier 2, and so on. There are as many tiers
  // as lie between the distance of two nodes and the largest distance.
  std::vector<std::vector<int>> tiers;
  std::vector<MeasuredCollective> collectives;
};

// Reads the text of such a file. `origin` names it in errors. Throws ConfigError in one line if the
// text is no such file, a number is missing or makes no sense, or the tiers do not suit the hosts.
StoredRates read_network_rates(std::string_view text, const std::string& origin);
// Returns the text of such a file.
std::string write_network_rates(const StoredRates& stored);

// Where this cluster's rates are kept: the file that TRIREME_NETWORK in the environment names, or
// else $XDG_CACHE_HOME/trireme/network-CLUSTER.json (~/.cache if it is not set), with the cluster's
// name from SLURM_CLUSTER_NAME, or "local". Empty if there is no home folder.
std::string usual_rates_path();

// Why rates do not suit a job on these hosts: hosts that took no part. Empty if they do.
std::string why_stale(const StoredRates& stored, const std::vector<std::string>& hosts);
// Why rates do not suit ranks in that many tiers of blocks, nodes included: the rates have another
// number of distances. Empty if they do.
std::string why_other_tiers(const NetworkRates& rates, int tiers);

}  // namespace trireme
