// The hosts, switches and cables of a cluster, as one of its descriptions tells them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme {

// Where a fact is from, in order of trust.
enum class FabricSource { kSlurm, kDump, kSysfs, kMeasured, kMadeUp };
std::string_view name_of(FabricSource source);  // "Slurm", "ibnetdiscover", ...

struct FabricVertex {
  std::string name;  // of a host: the node's name
  bool is_switch = false;
  // 0 for a host, 1 for a leaf switch, and so on upwards; -1 for a switch that hosts do not need to
  // reach each other.
  int level = 0;
  FabricSource from = FabricSource::kMadeUp;
  bool is_above = false;  // leaf switches, as a source says, whatever hosts are on it
};

// Cables that run side by side between the same two ends are several entries.
struct Cable {
  int a, b;                       // vertices
  double bytes_per_second = 0.0;  // in each direction; 0: not known
  FabricSource from = FabricSource::kMadeUp, rate_from = FabricSource::kMadeUp;
  std::string adapter = {};        // of a cable to a host: "mlx5_0"; empty: not known
  std::uint64_t adapter_guid = 0;  // 0: not known
  int adapter_port = 0;            // from 1; 0: not known
};

class Fabric {
 public:
  explicit Fabric(FabricSource source) : source_(source) {}

  FabricSource source() const { return source_; }
  const std::vector<FabricVertex>& vertices() const { return vertices_; }
  const std::vector<Cable>& cables() const { return cables_; }
  // What was odd in the description, a line each. What a remark is about was left out.
  const std::vector<std::string>& remarks() const { return remarks_; }

  std::optional<int> host(std::string_view name) const;
  // Return the vertex; make it where it is new.
  int add_host(const std::string& name);
  int add_switch(const std::string& name);
  // Adds a cable as a fact from source().
  void add_cable(Cable cable);
  // Adds a cable with the sources that it names.
  void keep_cable(Cable cable) { cables_.push_back(std::move(cable)); }
  void set_rate(std::size_t cable, double bytes_per_second, FabricSource from);
  void set_source(int vertex, FabricSource from);
  // Keeps the first hundred remarks and counts the rest.
  void remark(std::string text);

  void set_above(int vertex);
  void set_level(int vertex, int level);
  // Sets the levels, by the cables from a switch to the nearest leaf switch. Leaf switches are
  // those with hosts, but not the ones with few hosts that join others with more of them: there a
  // level counts from the others. A switch of a dump that joins nothing has no level.
  void find_levels();

 private:
  int add(std::unordered_map<std::string, int>& names, const std::string& name, bool is_switch);

  FabricSource source_;
  std::vector<FabricVertex> vertices_;
  std::vector<Cable> cables_;
  std::unordered_map<std::string, int> hosts_, switches_;
  std::vector<std::string> remarks_;
};

// The readers name `origin` in their messages. Text is untrusted: no input makes them need more
// memory than a small multiple of its size, or names than kMostNames.
inline constexpr std::size_t kMostNames = std::size_t{1} << 18;

// Returns the text of a file that a line names: `where` is the line, for messages.
using ReadIncluded = std::function<std::string(const std::string& where, const std::string& file)>;

// Reads Slurm's topology.conf or the output of `scontrol show topology`, for topology/tree and
// topology/block, as Slurm reads it. Blocks count as leaf switches of one more switch. What is not
// understood is a remark. Throws ConfigError if nothing in the text describes a switch or a block,
// a list of names is malformed, or too many files are included; without `read_included` these are
// remarks.
Fabric read_slurm_topology(std::string_view text, const std::string& origin,
                           const ReadIncluded& read_included = {});

// Reads Slurm's topology.yaml: a list of named topologies, each a tree, blocks or flat. `topology`
// names one of them; empty: the cluster's default, or else the first. Throws ConfigError if the
// text is no YAML or no such list, or has no topology of that name.
Fabric read_slurm_yaml(std::string_view text, const std::string& origin,
                       const std::string& topology);
// Whether a text looks like topology.yaml, not like topology.conf.
bool is_slurm_yaml(std::string_view text);

// Makes a fabric of what tasks find in SLURM_TOPOLOGY_ADDR and SLURM_TOPOLOGY_ADDR_PATTERN: pairs
// of address and pattern, as in "spine[1-2].leaf2.n3" and "switch.switch.node". The components of
// an address may hold dots; then the pattern cannot tell them apart, and a remark says so.
Fabric fabric_of_addresses(const std::vector<std::pair<std::string, std::string>>& addresses);
// Returns the pair of this task. Nothing where Slurm tells none, or the address is of another node:
// mpiexec gives the environment of the node where it was called to the ranks of all nodes.
std::optional<std::pair<std::string, std::string>> own_address();

// Makes a tree of switches in which each switch of a level has the same number of children, hosts
// on the lowest level. Hosts are called "host0", "host1", ..., along the leaves. All uplinks of a
// switch are one cable.
struct FatTreeLevel {
  int children;
  double up_bytes_per_second;  // of a switch; ignored on the highest level
};
Fabric make_fat_tree(const std::vector<FatTreeLevel>& levels, double host_bytes_per_second);

// Reads a dump of ibnetdiscover. A host is the first word of an adapter's description; its adapters
// are ports of one vertex. Where that word is no host's name ("localhost", a factory's name), or
// two cards have the same words, each card is a host, called after its GUID. Throws ConfigError if
// the text holds no switch and no adapter, or more than kMostNames of them.
Fabric read_ibnetdiscover(std::string_view text, const std::string& origin);

}  // namespace trireme
