#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/topology/fabric.h"

#include "topology/fabric/infiniband_rate.h"

namespace trireme {
namespace {

// A node's name in a dump: "S-0000aa0000000101" is a switch, "H-..." an adapter, "R-..." a router.
struct NodeId {
  char kind = 0;
  std::uint64_t guid = 0;
  auto operator<=>(const NodeId&) const = default;
};

// Takes what stands between the next pair of double quotes off `text`.
std::optional<std::string_view> take_quoted(std::string_view& text) {
  const std::size_t begin = text.find('"');
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t end = text.find('"', begin + 1);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view inside = text.substr(begin + 1, end - begin - 1);
  text.remove_prefix(end + 1);
  return inside;
}

std::optional<NodeId> node_id(std::string_view text) {
  if (text.size() < 3 || text[1] != '-') return std::nullopt;
  NodeId id{text[0], 0};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data() + 2, end, id.guid, 16);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return id;
}

// Takes "[12]" off the front of `text`.
std::optional<int> take_port(std::string_view& text) {
  if (text.empty() || text.front() != '[') return std::nullopt;
  const std::size_t end = text.find(']');
  if (end == std::string_view::npos) return std::nullopt;
  int port = -1;
  const auto result = std::from_chars(text.data() + 1, text.data() + end, port);
  if (result.ec != std::errc() || result.ptr != text.data() + end || port < 0) return std::nullopt;
  text.remove_prefix(end + 1);
  return port;
}

// Takes "(bb0000000101)" off the front of `text`; 0 if there is none. Switches have no such: there
// the GUID is behind the peer's name.
std::uint64_t take_port_guid(std::string_view& text) {
  if (text.empty() || text.front() != '(') return 0;
  const std::size_t end = text.find(')');
  if (end == std::string_view::npos) return 0;
  std::uint64_t guid = 0;
  const auto result = std::from_chars(text.data() + 1, text.data() + end, guid, 16);
  if (result.ec != std::errc() || result.ptr != text.data() + end) return 0;
  text.remove_prefix(end + 1);
  return guid;
}

std::string_view last_word(std::string_view text) {
  const std::size_t end = text.find_last_not_of(" \t\r");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const std::size_t space = text.find_last_of(" \t");
  return space == std::string_view::npos ? text : text.substr(space + 1);
}

// The second word of "host1 mlx5_0" and of "host1 HCA-1".
std::string adapter_in(std::string_view description) {
  const std::size_t space = description.find(' ');
  if (space == std::string_view::npos) return {};
  description.remove_prefix(space + 1);
  return std::string(description.substr(0, description.find(' ')));
}

// Whether a host's name is not its own: an adapter that nobody has named says what it is, as in
// "MT4123 ConnectX6 Mellanox Technologies", and a host without a name is "localhost" or "(none)".
bool is_no_name(std::string_view host) {
  std::string name(host);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* none : {"localhost", "(none)", "none", "mellanox", "nvidia", "intel", "qlogic",
                           "cornelis", "infiniband"}) {
    if (name.substr(0, name.find('.')) == none) return true;
  }
  for (const char* model : {"connectx", "connect-x", "bluefield", "infinihost", "infinipath"}) {
    if (name.starts_with(model)) return true;
  }
  // Mellanox's numbers of chips, and devices as their drivers call them.
  for (const char* kind : {"MT", "mlx4_", "mlx5_", "mthca", "hfi1_", "qib", "ipath"}) {
    if (!host.starts_with(kind)) continue;
    const std::string_view number = host.substr(std::string_view(kind).size());
    return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  }
  return false;
}

// InfiniBand's own descriptions have 64 characters; a map of names may give longer ones.
constexpr std::size_t kMostDescription = 256;

class DumpReader {
 public:
  explicit DumpReader(std::string origin) : origin_(std::move(origin)) {}

  Fabric read(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      read_line(line);
    }
    if (nodes_.empty()) {
      throw ConfigError(
          fmt::format("{}: no line describes a switch (Switch ...) or an adapter "
                      "(Ca ...), as a dump of ibnetdiscover has",
                      shown(origin_)));
    }
    name_nodes();
    connect();
    fabric_.find_levels();
    return std::move(fabric_);
  }

 private:
  // A switch or an adapter as it is described. Adapters on one card have one `system`.
  struct Described {
    NodeId id;
    std::uint64_t system = 0;
    std::string name, adapter;  // the host's name, or that of the switch
  };
  // One end of a cable.
  struct Port {
    NodeId node;
    int number = 0;
    auto operator<=>(const Port&) const = default;
  };
  struct Peer {
    Port port;
    double bytes_per_second = 0.0;
    int line = 0;
  };

  static constexpr int kUnnamed = -1;

  void remark(const std::string& what) {
    fabric_.remark(fmt::format("{}, line {}: {}", shown(origin_), line_, what));
  }

  void read_line(std::string_view line) {
    if (line.starts_with("Switch") || line.starts_with("Ca")) {
      read_node(line);
    } else if (line.starts_with("Rt")) {
      self_.reset();  // a router leads elsewhere
    } else if (line.starts_with("[") && self_) {
      read_port(line);
    } else if (constexpr std::string_view kSystem = "sysimgguid=0x"; line.starts_with(kSystem)) {
      std::from_chars(line.data() + kSystem.size(), line.data() + line.size(), system_, 16);
    }
  }
  void read_node(std::string_view line) {
    self_.reset();
    const std::uint64_t system = std::exchange(system_, 0);
    const auto name = take_quoted(line);
    const auto id = name ? node_id(*name) : std::nullopt;
    const bool is_switch = id && id->kind == 'S';
    if (!id || (!is_switch && id->kind != 'H')) {
      remark("a node without a GUID");
      return;
    }
    const std::string description(take_quoted(line).value_or(""));
    if (description.size() > kMostDescription) {
      remark(fmt::format("a description of {} characters, more than {}", description.size(),
                         kMostDescription));
      return;
    }
    // What the switches themselves use to add: no host.
    if (description.find("Aggregation Node") != std::string::npos) return;
    if (vertices_.contains(*id)) {
      remark(fmt::format("the GUID {:016x} is described a second time", id->guid));
      return;
    }
    const std::string host = description.substr(0, description.find(' '));
    if (!is_switch && host.empty()) {
      remark(fmt::format("the adapter {:016x} names no host", id->guid));
      return;
    }
    if (nodes_.size() == kMostNames) {
      throw ConfigError(fmt::format("{}, line {}: more than {} switches and adapters",
                                    shown(origin_), line_, kMostNames));
    }
    // People give switches names that are not unique; GUIDs are.
    nodes_.push_back({*id, system == 0 ? id->guid : system,
                      is_switch ? fmt::format("{} ({:016x})", description, id->guid) : host,
                      is_switch ? "" : adapter_in(description)});
    vertices_[*id] = kUnnamed;
    self_ = id;
  }

  // The names of hosts that belong to several, by descriptions that two cards have in all words;
  // with such a description, and how many cards have it.
  using SharedNames = std::map<std::string, std::pair<std::string, std::size_t>, std::less<>>;
  SharedNames shared_names() const {
    std::map<std::pair<std::string_view, std::string_view>, std::set<std::uint64_t>> cards;
    for (const Described& node : nodes_) {
      if (node.id.kind != 'S' && !node.adapter.empty() && !is_no_name(node.name)) {
        cards[{node.name, node.adapter}].insert(node.system);
      }
    }
    SharedNames shared;
    for (const auto& [name, systems] : cards) {
      if (systems.size() < 2) continue;
      shared.emplace(name.first,
                     std::pair(fmt::format("{} {}", name.first, name.second), systems.size()));
    }
    return shared;
  }

  // Makes a vertex of each switch and each host. Adapters of one name are on one host, unless the
  // name is that of several hosts, or nobody's.
  void name_nodes() {
    const SharedNames shared = shared_names();
    std::set<std::uint64_t> nameless;
    std::string such;
    for (Described& node : nodes_) {
      int& vertex = vertices_[node.id];
      if (node.id.kind == 'S') {
        vertex = fabric_.add_switch(node.name);
        continue;
      }
      const bool is_nameless = is_no_name(node.name);
      if (is_nameless && nameless.insert(node.system).second) such = node.name;
      const bool by_card = is_nameless || shared.contains(node.name);
      vertex = fabric_.add_host(by_card ? fmt::format("{} ({:016x})", node.name, node.system)
                                        : node.name);
      adapters_[node.id] = std::move(node.adapter);
    }
    nodes_.clear();
    for (const auto& [host, cards] : shared) {
      fabric_.remark(fmt::format("{}: {} adapters are called '{}': each card counts as a host",
                                 shown(origin_), cards.second, shown(cards.first)));
    }
    if (nameless.empty()) return;
    const bool is_one = nameless.size() == 1;
    fabric_.remark(fmt::format(
        "{}: {} without the name of {} host, such as '{}': {} counts as a host", shown(origin_),
        is_one ? "an adapter is" : fmt::format("{} adapters are", nameless.size()),
        is_one ? "its" : "their", shown(such), is_one ? "it" : "each card"));
  }

  void read_port(std::string_view line) {
    const auto own = take_port(line);
    const std::uint64_t guid = take_port_guid(line);
    const auto name = take_quoted(line);
    const auto peer = name ? node_id(*name) : std::nullopt;
    const auto port = take_port(line);
    if (!own || !peer || !port) {
      remark("a port without a peer");
      return;
    }
    const Port here{*self_, *own};
    if (guid != 0) compare_guid(here, guid);
    const Peer there{{*peer, *port}, infiniband_bytes_per_second(last_word(line)), line_};
    if (there.bytes_per_second == 0.0) remark("a rate that is unknown");
    if (!peers_.emplace(here, there).second) {
      remark(fmt::format("port {} of {:016x} has a second cable", *own, self_->guid));
    }
  }
  // The subnet manager tells ports apart by these. Cables are told by node and number, so both
  // stay.
  void compare_guid(const Port& here, std::uint64_t guid) {
    const auto [known, is_new] = guids_.emplace(guid, here);
    if (is_new || known->second == here) return;
    remark(fmt::format(
        "port {} of {:016x} has the GUID {:016x}, which is that of port {} of {:016x}", here.number,
        here.node.guid, guid, known->second.number, known->second.node.guid));
  }
  // Each cable is told by both of its ends; one is enough.
  void connect() {
    for (const auto& [here, there] : peers_) {
      line_ = there.line;
      const auto a = vertices_.find(here.node), b = vertices_.find(there.port.node);
      if (a == vertices_.end() || b == vertices_.end()) continue;  // left out before
      const auto back = peers_.find(there.port);
      if (back != peers_.end()) {
        if (back->second.port != here) {
          remark(fmt::format("port {} of {:016x} leads to a port that leads elsewhere", here.number,
                             here.node.guid));
          continue;
        }
        if (there.port < here) continue;
      }
      const double rates[] = {there.bytes_per_second,
                              back == peers_.end() ? 0.0 : back->second.bytes_per_second};
      const auto [low, high] = std::minmax(rates[0], rates[1]);
      if (low > 0.0 && low < high) {
        remark("the ends of a cable have different rates; the lower one counts");
      }
      if (a->second == b->second) continue;
      Cable cable{a->second, b->second, low > 0.0 ? low : high};
      for (const NodeId& end : {here.node, there.port.node}) {
        if (end.kind == 'S') continue;
        cable.adapter = adapters_.at(end);
        cable.adapter_guid = end.guid;
        cable.adapter_port = end == here.node ? here.number : there.port.number;
      }
      fabric_.add_cable(std::move(cable));
    }
  }

  std::string origin_;
  Fabric fabric_{FabricSource::kDump};
  int line_ = 0;
  std::uint64_t system_ = 0;    // of the node that comes next; 0: not told
  std::optional<NodeId> self_;  // whose ports follow
  std::vector<Described> nodes_;
  std::map<NodeId, int> vertices_;
  std::map<NodeId, std::string> adapters_;
  std::map<Port, Peer> peers_;
  std::map<std::uint64_t, Port> guids_;  // of the adapters' own ports
};

}  // namespace

Fabric read_ibnetdiscover(std::string_view text, const std::string& origin) {
  return DumpReader(origin).read(text);
}

}  // namespace trireme
