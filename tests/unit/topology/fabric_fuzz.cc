#include "fabric_fuzz.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/base/philox.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_json.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/machine.h"
#include "trireme/topology/nccl_table.h"
#include "trireme/topology/network.h"
#include "trireme/topology/odd_cables.h"
#include "trireme/topology/rank_order.h"

#include "support/temporary_folder.h"

namespace trireme::fabric_fuzz {
namespace {

using Texts = std::vector<std::string>;

void demand(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "fabric_fuzz: %s\n", what);
  std::abort();
}

constexpr std::size_t kSmall = 300;  // vertices; what comes after a reader takes more time
constexpr std::size_t kUsed = 4;     // in a short run that is done for one text of so many

void check(const Fabric& fabric) {
  const auto count = static_cast<int>(fabric.vertices().size());
  for (const Cable& cable : fabric.cables()) {
    demand(0 <= cable.a && cable.a < count && 0 <= cable.b && cable.b < count,
           "a cable of nothing");
    demand(cable.bytes_per_second >= 0.0 && std::isfinite(cable.bytes_per_second), "an odd rate");
  }
  demand(fabric.remarks().size() <= 101, "too many remarks");
}

const std::string kDump = R"(vendid=0x0
sysimgguid=0xaa00
switchguid=0xaa01(aa01)
Switch	4 "S-000000000000aa01"		# "leaf1" base port 0 lid 2 lmc 0
[1]	"H-000000000000bb00"[1](bb01) 		# "n1 mlx5_0" lid 1 4xHDR
[2]	"S-000000000000aa03"[1]		# "spine1" lid 3 4xNDR
[3]	"H-000000000000ee00"[1](ee01) 		# "Mellanox Technologies Aggregation Node" lid 9 4xHDR

Switch	4 "S-000000000000aa02"		# "leaf2" base port 0 lid 4 lmc 0
[1]	"H-000000000000cc00"[1](cc01) 		# "n2 mlx5_0" lid 5 4xHDR
[2]	"S-000000000000aa03"[2]		# "spine1" lid 3 4xNDR

Switch	4 "S-000000000000aa03"		# "spine1" base port 0 lid 3 lmc 0
[1]	"S-000000000000aa01"[2]		# "leaf1" lid 2 4xNDR
[2]	"S-000000000000aa02"[2]		# "leaf2" lid 4 4xNDR

Ca	1 "H-000000000000bb00"		# "n1 mlx5_0"
[1](bb01) 	"S-000000000000aa01"[1]		# lid 1 lmc 0 "leaf1" lid 2 4xHDR
Ca	1 "H-000000000000cc00"		# "n2 mlx5_0"
[1](cc01) 	"S-000000000000aa02"[1]		# lid 5 lmc 0 "leaf2" lid 4 4xHDR
)";

const std::string kConf =
    "# a tree\nSwitchName = leaf1 Nodes=\"n1, n2\" #\\\nInclude more\nSwitchName=leaf2 Level=0 "
    "LinkSpeed=1 "
    "Nodes=r[1-2]n[03-05],x\\\n Foo=1\nSwitchName=spine Switches=leaf[1-2]\n";
const std::string kBlocks = "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n5\nBlockSizes=4\n";

const std::string kYaml =
    "---\n- topology: tree\n  cluster_default: true\n  tree:\n    switches:\n      - switch: "
    "spine\n"
    "        children: leaf[1-2]\n      - switch: leaf1\n        nodes: n[1-2]\n      - switch: "
    "leaf2\n"
    "        nodes: n[3-4]\n- topology: racks\n  block: {block_sizes: [2], blocks: [{block: b1, "
    "nodes: "
    "'n[1-2]'}]}\n- topology: flat\n  flat: true\n";

// What follows a reader, with a good description of the other kind.
void use(const Fabric& fabric, bool is_used) {
  static const Fabric kGoodDump = read_ibnetdiscover(kDump, "good");
  static const Fabric kGoodConf = read_slurm_topology(kConf, "good");
  check(fabric);
  if (fabric.vertices().size() > kSmall || fabric.cables().size() > 4 * kSmall) return;
  if (!is_used) return;
  Fabric merged = fabric.source() == FabricSource::kDump ? merge_fabrics(kGoodConf, fabric)
                                                         : merge_fabrics(fabric, kGoodDump);
  const std::vector<int> hosts = hosts_by_name(merged);
  LocalPort port;
  port.adapter = "mlx5_0";
  port.link_layer = "InfiniBand";
  port.state = "ACTIVE";
  port.bytes_per_second = 25e9;
  if (!hosts.empty()) {
    merge_ports(merged, merged.vertices()[static_cast<std::size_t>(hosts.front())].name, {port});
  }
  NetworkRates rates;
  rates.distances = {{}, {1e-6, 9e9, 10e9, 0.0}, {2e-6, 9e9, 10e9, 15e9}};
  merge_rates(merged, rates);
  check(merged);
  for (const FabricLevel& level : levels_of(merged)) demand(level.vertices > 0, "an empty level");
  rails_of(merged);
  demand(!json_of(merged).dump().empty(), "no JSON");
  check(fabric_from_json(json_of(merged)));
  for (const SlowCable& slow : slow_cables(merged)) text_of(merged, slow);
  for (const OddTaper& odd : odd_tapers(merged)) text_of(merged, odd);
  if (hosts.size() < 2) return;
  const TreeNetwork network(merged, {hosts.front(), hosts.back()}, {});
  std::vector<int> links;
  network.route(0, 1, links);
  demand(!links.empty(), "no way between two hosts");
  for (const int link : links) {
    demand(network.links().at(static_cast<std::size_t>(link)).bytes_per_second > 0.0,
           "a dead link");
  }
}

std::vector<std::pair<std::string, std::string>> addresses_in(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> addresses;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t space = line.find(' ');
    addresses.emplace_back(line.substr(0, space),
                           space == std::string_view::npos ? "" : line.substr(space + 1));
  }
  return addresses;
}

const std::string kRates =
    R"({"format": "trireme network rates", "version": 1, "cluster": "c", "measured": 1700000000,)"
    R"( "hosts": ["n1", "n2", "n3"], "distances": [{"latency": 1e-6, "flow": 1e10, "host": 0, "block": 0},)"
    R"( {"latency": 2e-6, "flow": 1e10, "host": 1e10, "block": 0}, {"latency": 3e-6, "flow": 1e10,)"
    R"( "host": 1e10, "block": 2e10}], "tiers": [[0, 0, 1]], "costs": {"message": 1e-6, "reduced_byte":)"
    R"( 1e-11, "copied_byte": 1e-11}, "collectives": []})";

// A sysfs tree: a file a line, its path before the first space.
const std::string kPorts = R"(mlx5_0/node_guid b859:9f03:00a1:b2c4
mlx5_0/device/numa_node 0
mlx5_0/device/local_cpus ffffffff
mlx5_0/ports/1/state 4: ACTIVE
mlx5_0/ports/1/phys_state 5: LinkUp
mlx5_0/ports/1/link_layer InfiniBand
mlx5_0/ports/1/rate 200 Gb/sec (4X HDR)
mlx5_0/ports/1/lid 0x12
mlx5_0/ports/1/sm_lid 0x1
mlx5_0/ports/1/gids/0 fe80:0000:0000:0000:b859:9f03:00a1:b2c4
mlx5_1/ports/1/rate 2.5 Gb/sec (1X SDR)
mlx5_1/ports/1/state 1: DOWN
)";

// Holds one tree at a time, in memory where the system has a file system there.
class Tree {
 public:
  const std::filesystem::path& root() const { return folder_.path(); }
  void fill(std::string_view text) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path adapters = root() / "class" / "infiniband";
    fs::remove_all(adapters, ignored);
    for (std::size_t files = 0; !text.empty() && files < 40; ++files) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      const std::size_t space = line.find(' ');
      const std::string path(line.substr(0, space));
      // Nothing outside of the tree.
      if (path.empty() || path.size() > 200 || path.find("..") != std::string::npos ||
          path.find('\0') != std::string::npos) {
        continue;
      }
      const fs::path file = adapters / fs::path(path).relative_path();
      if (file.filename() == "cycle") {
        fs::create_directory_symlink(adapters, file, ignored);
        continue;
      }
      fs::create_directories(file.parent_path(), ignored);
      std::ofstream(file, std::ios::binary)
          << (space == std::string_view::npos ? "" : line.substr(space + 1)) << '\n';
    }
  }

 private:
  static std::filesystem::path parent() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code none;
    return std::filesystem::is_directory(memory, none) ? memory
                                                       : std::filesystem::temp_directory_path();
  }

  testing::TemporaryFolder folder_{parent()};
};

void read_tree(std::string_view text) {
  static Tree tree;
  tree.fill(text);
  const std::vector<LocalPort> ports = read_local_ports(tree.root());
  demand(ports.size() <= 1024, "too many ports");
  for (const LocalPort& port : ports) {
    demand(port.bytes_per_second >= 0.0 && port.bytes_per_second < 1e15, "an odd rate");
  }
  Fabric fabric = read_slurm_topology("SwitchName=s Nodes=n[1-2]", "good");
  merge_ports(fabric, "n1", ports);
  check(fabric);
  if (ports.empty()) throw ConfigError("no port");
}

const std::string kXml = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001" gp_index="1">
  <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
   <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="1000000"/>
   <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
    <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
   </object>
   <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6">
    <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7"/>
   </object>
  </object>
  <object type="Bridge" gp_index="8" bridge_type="0-1" depth="0" bridge_pci="0000:[00-1f]">
   <object type="PCIDev" gp_index="9" pci_busid="0000:18:00.0" pci_type="0207 [15b3:101b] [15b3:0007] 00" pci_link_speed="31.5">
    <object type="OSDev" gp_index="10" name="mlx5_0" osdev_type="3">
     <info name="NodeGUID" value="b859:9f03:00a1:b2c4"/>
    </object>
   </object>
  </object>
 </object>
</topology>
)";

const std::string kTable =
    "trireme-nccl-table 1\ncommunicator 16 4\ncompared tree ring\nall_reduce 65536 tree/ll128 "
    "tree/ll tree/simple\nall_reduce any ring/simple/8\ncommunicator 4 2\ncompared ring "
    "pat\nall_gather 1024 pat/simple ring/ll\n";

}  // namespace

const std::vector<Reader>& readers() {
  static const std::vector<Reader> kReaders = {
      {"dump",
       {kDump},
       {"Switch\t4 \"S-", "Ca\t1 \"H-", "Rt\t1 \"R-", "\"H-000000000000bb00\"",
        "\"S-000000000000aa01\"[3]", "[1]\t", "4xHDR", "12xGDR", "0x", "99999999999999999999", "\"",
        "(bb01)", "\n", "# \"", "lid "}},
      {"slurm",
       {kConf, kBlocks},
       {"SwitchName=", "Nodes=", "Switches=", "BlockName=", "n[1-99]", "n[001-999]", "leaf[1-2]",
        "[", "]", ",", "-", "\\\n", "#", "(null)", "=", " ", "n[1-3][1-3]"}},
      {"yaml", {kYaml}, {"- ",        ": ",     "\n",      "  ",         "{",
                         "}",         "[",      "]",       "topology",   "tree:",
                         "switches:", "block:", "blocks:", "flat: true", "&a ",
                         "*a",        "!!int ", "|\n",     "'",          "\"",
                         "? ",        "---",    "<<: ",    "nodes: ",    "n[1-99]"}},
      {"addresses",
       {"spine[1-2].leaf1.n1 switch.switch.node\nspine[1-2].leaf2.n3 switch.switch.node\nn4 node\n",
        "b1.n1 block.node\n"},
       {".", "switch", "node", "block", "[1-9]", "[", "]", ",", " ", "\n", "spine[1-300]"}},
      {"rates",
       {kRates},
       {"[", "]", "{", "}", ",", ":", "\"", "null", "1e308", "-1", "0", "1e-320", "\"tiers\"",
        "[[]]", "true"}},
      {"port",
       {"200 Gb/sec (4X HDR)", "2.5 Gb/sec (1X SDR)"},
       {"(", ")", "X", "x", "HDR", "1e999", "nan", "inf", "-", " Gb/sec", "12X", "FDR10"}},
      {"names",
       {"n[1-3,07],login", "r[1-2]n[08-10]x"},
       {"[", "]", "-", ",", "0", "9999999999", "[1-9]"}},
      {"order",
       {"# places\n2\n0\n1\n3\n", "n2\nn1\n"},
       {"0", "1", "2", "3", "-1", "99999999999999999999", "n1", "n2", "n3", "\n", "#", " "}},
      {"nccl",
       {kTable},
       {"communicator ", "compared ", "all_reduce ", "any ", "tree", "ring", "/", "ll128", "simple",
        "\n", " ", "18446744073709551616", "-1", "#", "trireme-nccl-table "}},
      {"sysfs",
       {kPorts},
       {"mlx5_0/", "ports/", "1/", "/rate ", "cycle\n", "mlx5_1/ports/cycle\n", "\n", " ", ":",
        "0x", "99999999999", "Gb/sec", "4X", "(", "ACTIVE"},
       2},
      {"hwloc",
       {kXml},
       {"<object type=\"", "</object>", "<info name=\"", "\"/>", "\">", "cpuset=\"0x",
        "gp_index=\"", "OSDev", "PCIDev", "Bridge", "Group", "Misc", "NUMANode",
        ("<distances2 nbobjs=\"2\" "
         "type=\"PU\" indexing=\"os\" kind=\"5\">"),
        "<indexes length=\"3\">0 1</indexes>", "os_index=\"4294967295\"", "depth=\"-9\"",
        "<userdata length=\"9\">", "0xf...f"},
       1}};
  return kReaders;
}

bool read(std::size_t reader, std::string_view text, bool use_all) {
  const bool is_used = use_all || text.size() % kUsed == 0;
  const std::string& name = readers().at(reader).name;
  try {
    if (name == "dump") {
      use(read_ibnetdiscover(text, "a"), is_used);
    } else if (name == "slurm" || name == "yaml") {
      is_slurm_yaml(text);
      use(name == "slurm" ? read_slurm_topology(text, "a") : read_slurm_yaml(text, "a", ""),
          is_used);
    } else if (name == "addresses") {
      use(fabric_of_addresses(addresses_in(text)), is_used);
    } else if (name == "rates") {
      const StoredRates stored = read_network_rates(text, "a");
      Fabric fabric = fabric_of_rates(stored);
      merge_rates(fabric, stored.rates);
      use(fabric, is_used);
    } else if (name == "port") {
      const double rate = bytes_per_second_of_port(text);
      demand(rate >= 0.0 && rate < 1e15, "an odd rate");
      return rate > 0.0;
    } else if (name == "order") {
      const std::vector<int> order = read_rank_order(text, "a", {"n1", "n1", "n2", "n2"});
      demand(std::ranges::is_permutation(order, std::vector{0, 1, 2, 3}), "no order of the ranks");
    } else if (name == "nccl") {
      std::string problem;
      const auto tables = read_nccl_tables(text, problem);
      demand(tables.has_value() == problem.empty(), "a table and a problem");
      if (!tables) throw ConfigError(problem);
      // What is written is read again.
      demand(read_nccl_tables(write_nccl_tables(*tables), problem) == tables, "another table");
    } else if (name == "sysfs") {
      read_tree(text);
    } else if (name == "hwloc") {
      const Machine machine = read_machine_xml(std::string(text), "a");
      demand(machine.distances.size() == machine.devices.size(), "devices without distances");
      demand(!lines_of(machine, {}).empty() && !json_of(machine, {}).dump().empty(), "no text");
    } else {
      demand(expand_node_list(text, 10000).size() <= 10000, "too many names");
    }
  } catch (const ConfigError& error) {
    const std::string_view message = error.what();
    demand(message.find('\n') == std::string_view::npos, "a message of several lines");
    return false;
  }
  return true;
}

std::size_t reader_of(std::uint64_t number) {
  std::size_t all = 0;
  for (const Reader& reader : readers()) all += reader.share;
  // Neighbouring numbers have different readers.
  std::size_t place = (number * 97) % all;
  for (std::size_t i = 0;; ++i) {
    if (place < readers()[i].share) return i;
    place -= readers()[i].share;
  }
}

std::string make_text(const Reader& reader, std::uint64_t seed, std::uint64_t number) {
  std::mt19937_64 random(philox_key(seed, reader.name) ^ (number * 0x9e3779b97f4a7c15u));
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  std::string text = reader.good[below(reader.good.size())];
  for (std::size_t changes = below(12) + 1; changes > 0; --changes) {
    if (text.empty()) text.push_back('x');
    const std::size_t at = below(text.size());
    switch (below(7)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, below(40));
        break;
      case 2:  // a piece of it once more
        text.insert(at, text.substr(below(text.size()), below(60)));
        break;
      case 3:
        text.insert(at, reader.words[below(reader.words.size())]);
        break;
      case 4: {  // another number
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(10));
        break;
      }
      case 5: {  // two lines change places
        const std::size_t end = text.find('\n', at);
        if (end == std::string::npos) break;
        const std::string line = text.substr(at, end - at + 1);
        text.erase(at, line.size());
        text.insert(below(text.size() + 1), line);
        break;
      }
      default:
        if (below(50) == 0) text.insert(at, std::string(below(5000), text[at]));
    }
  }
  return text;
}

}  // namespace trireme::fabric_fuzz
