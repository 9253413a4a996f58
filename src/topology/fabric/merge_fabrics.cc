#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_summary.h"

namespace trireme {
namespace {

// The hosts of a fabric.
struct Hosts {
  explicit Hosts(const Fabric& fabric) {
    for (std::size_t i = 0; i < fabric.vertices().size(); ++i) {
      if (fabric.vertices()[i].is_switch) continue;
      names.push_back(fabric.vertices()[i].name);
      vertices.push_back(static_cast<int>(i));
    }
  }
  std::vector<std::string> names;
  std::vector<int> vertices;
};

std::string some_names(std::vector<std::string> names) {
  return shown(node_list(std::move(names)));
}

// The leaf switches of each vertex that is a host.
std::vector<std::vector<int>> leaves_of(const Fabric& fabric) {
  const auto& vertices = fabric.vertices();
  std::vector<std::vector<int>> leaves(vertices.size());
  for (const Cable& cable : fabric.cables()) {
    for (const auto& [host, leaf] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
      auto& own = leaves[static_cast<std::size_t>(host)];
      if (vertices[static_cast<std::size_t>(host)].is_switch) continue;
      if (!vertices[static_cast<std::size_t>(leaf)].is_switch) continue;
      if (std::ranges::find(own, leaf) == own.end()) own.push_back(leaf);
    }
  }
  return leaves;
}

class Merge {
 public:
  Merge(Fabric trusted, Fabric detailed)
      : trusted_(std::move(trusted)),
        detailed_(std::move(detailed)),
        trusted_leaves_(leaves_of(trusted_)),
        detailed_leaves_(leaves_of(detailed_)) {}

  Fabric merged() {
    pair_hosts();
    if (common_ == 0) {
      trusted_.remark(fmt::format(
          "{} describes none of the hosts of {}, such as '{}': it is of another cluster and is "
          "left out",
          name_of(detailed_.source()), name_of(trusted_.source()), shown(first_host())));
      return std::move(trusted_);
    }
    match_leaves();
    raise_between_leaves();
    find_moved();
    if (2 * moved_.size() > common_) {
      trusted_.remark(
          fmt::format("{} and {} put {} of {} hosts below other leaf switches: {} is left out",
                      name_of(trusted_.source()), name_of(detailed_.source()), moved_.size(),
                      common_, name_of(detailed_.source())));
      return std::move(trusted_);
    }
    copy_detailed();
    move_hosts();
    add_missing_hosts();
    compare_levels();
    result_.find_levels();
    return std::move(result_);
  }

 private:
  std::string first_host() const {
    for (const FabricVertex& vertex : trusted_.vertices()) {
      if (!vertex.is_switch) return vertex.name;
    }
    return "";
  }

  // Sets twin_: for each host of `detailed` the same host of `trusted`.
  void pair_hosts() {
    const Hosts theirs(trusted_), ours(detailed_);
    const std::vector<int> found = match_nodes(ours.names, theirs.names);
    twin_.assign(detailed_.vertices().size(), -1);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] < 0) continue;
      twin_[static_cast<std::size_t>(ours.vertices[i])] =
          theirs.vertices[static_cast<std::size_t>(found[i])];
      ++common_;
    }
  }

  const std::vector<int>& trusted_leaves(int host) const {
    return trusted_leaves_[static_cast<std::size_t>(host)];
  }

  // Sets matched_: for each leaf switch of `detailed` the one of `trusted` that has most of its
  // hosts. A switch above leaf switches is that of hosts that no leaf switch has.
  void match_leaves() {
    std::map<int, std::map<int, int>> votes;
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      if (twin_[i] < 0) continue;
      for (const int leaf : detailed_leaves_[i]) {
        for (const int other : trusted_leaves(twin_[i])) ++votes[leaf][other];
      }
    }
    std::vector<std::tuple<bool, int, int>> best;
    for (const auto& [leaf, others] : votes) {
      known_.insert(leaf);
      const auto most =
          std::ranges::max_element(others, {}, [](const auto& vote) { return vote.second; });
      best.emplace_back(level(leaf) != 1, leaf, most->first);
    }
    std::ranges::sort(best);
    for (const auto& [is_above, leaf, other] : best) {
      if (is_above && detailed_of_.contains(other)) continue;
      matched_[leaf] = other;
      detailed_of_[other].push_back(leaf);
    }
  }

  // A switch none of whose hosts `trusted` knows, which alone connects several of its leaf switches
  // that have more hosts, is above these.
  void raise_between_leaves() {
    const auto& vertices = detailed_.vertices();
    std::set<int> neighbours;  // that are cabled to each other, as in a dragonfly
    for (const Cable& cable : detailed_.cables()) {
      const bool are_leaves = level(cable.a) == 1 && level(cable.b) == 1;
      if (are_leaves && matched_.contains(cable.a) && matched_.contains(cable.b)) {
        neighbours.insert({cable.a, cable.b});
      }
    }
    std::vector<int> hosts(vertices.size(), 0);
    for (const std::vector<int>& own : detailed_leaves_) {
      for (const int leaf : own) ++hosts[static_cast<std::size_t>(leaf)];
    }
    std::vector<std::set<int>> leaves(vertices.size());  // that are matched, at each switch
    for (const Cable& cable : detailed_.cables()) {
      for (const auto& [leaf, self] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
        const auto match = matched_.find(leaf);
        if (match == matched_.end() || neighbours.contains(leaf)) continue;
        const auto at = static_cast<std::size_t>(self);
        const bool has_fewer = hosts[at] < hosts[static_cast<std::size_t>(leaf)];
        if (vertices[at].is_switch && has_fewer) leaves[at].insert(match->second);
      }
    }
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const int self = static_cast<int>(i);
      if (leaves[i].size() > 1 && !known_.contains(self)) detailed_.set_above(self);
    }
    detailed_.find_levels();
  }

  // Finds the hosts that the two put below different leaf switches.
  void find_moved() {
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      if (twin_[i] < 0 || trusted_leaves(twin_[i]).empty() || detailed_leaves_[i].empty()) continue;
      const auto& told = trusted_leaves(twin_[i]);
      const bool agreed = std::ranges::any_of(detailed_leaves_[i], [&](int leaf) {
        const auto match = matched_.find(leaf);
        return match != matched_.end() && std::ranges::find(told, match->second) != told.end();
      });
      if (!agreed) moved_.insert(static_cast<int>(i));
    }
  }

  void copy_detailed() {
    for (const std::string& text : trusted_.remarks()) result_.remark(text);
    for (const std::string& text : detailed_.remarks()) result_.remark(text);
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      const FabricVertex& vertex = detailed_.vertices()[i];
      const bool known = twin_[i] >= 0;
      const int copy = vertex.is_switch ? result_.add_switch(vertex.name)
                       : known          ? result_.add_host(trusted_name(twin_[i]))
                                        : result_.add_host(vertex.name);
      result_.set_source(copy, known ? trusted_.source() : vertex.from);
      if (vertex.is_above) result_.set_above(copy);
      copy_of_.push_back(copy);
    }
    for (Cable cable : detailed_.cables()) {
      if (moved_.contains(cable.a) || moved_.contains(cable.b)) continue;
      for (const int end : {cable.a, cable.b}) {
        // Both tell below which leaf switch the host is.
        const int twin = twin_[static_cast<std::size_t>(end)];
        if (twin >= 0 && !trusted_leaves(twin).empty()) cable.from = trusted_.source();
      }
      cable.a = copy_of_[static_cast<std::size_t>(cable.a)];
      cable.b = copy_of_[static_cast<std::size_t>(cable.b)];
      result_.keep_cable(std::move(cable));
    }
  }

  const std::string& trusted_name(int vertex) const {
    return trusted_.vertices()[static_cast<std::size_t>(vertex)].name;
  }

  // The switches of the result that stand for a leaf switch of `trusted`; made if there are none.
  std::vector<int> standing_for(int leaf) {
    const auto known = detailed_of_.find(leaf);
    if (known != detailed_of_.end()) {
      std::vector<int> result;
      for (const int other : known->second) {
        result.push_back(copy_of_[static_cast<std::size_t>(other)]);
      }
      return result;
    }
    const auto [made, is_new] = made_.emplace(leaf, 0);
    if (is_new) {
      made->second = result_.add_switch(trusted_name(leaf));
      result_.set_source(made->second, trusted_.source());
      connect_above(made->second);
    }
    return {made->second};
  }

  // Cables from a switch that only `trusted` knows to the switches above the others.
  void connect_above(int leaf) {
    std::set<int> above;
    for (const Cable& cable : detailed_.cables()) {
      for (const auto& [low, high] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
        // One that joins nothing, as far as `detailed` knows, may be above this leaf.
        const bool is_above = level(high) == 2 || level(high) == -1;
        if (level(low) == 1 && is_above) above.insert(high);
      }
    }
    for (const int high : above) {
      Cable cable{leaf, copy_of_[static_cast<std::size_t>(high)]};
      cable.from = cable.rate_from = trusted_.source();
      result_.keep_cable(std::move(cable));
    }
  }
  int level(int vertex) const {
    return detailed_.vertices()[static_cast<std::size_t>(vertex)].level;
  }

  void move_hosts() {
    for (const int host : moved_) {
      const auto i = static_cast<std::size_t>(host);
      const int leaf = trusted_leaves(twin_[i]).front();
      result_.remark(fmt::format(
          "host '{}': {} puts it below '{}', {} below '{}'; {} counts",
          shown(trusted_name(twin_[i])), name_of(trusted_.source()), shown(trusted_name(leaf)),
          name_of(detailed_.source()),
          shown(detailed_.vertices()[static_cast<std::size_t>(detailed_leaves_[i].front())].name),
          name_of(trusted_.source())));
    }
    std::map<int, std::size_t> cables;  // of each host so far
    for (Cable cable : detailed_.cables()) {
      for (auto [host, other] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
        if (!moved_.contains(host)) continue;
        const auto i = static_cast<std::size_t>(host);
        const std::vector<int> leaves = standing_for(trusted_leaves(twin_[i]).front());
        cable.a = leaves[cables[host]++ % leaves.size()];
        cable.b = copy_of_[i];
        cable.from = trusted_.source();
        result_.keep_cable(cable);
        break;
      }
    }
  }

  void add_missing_hosts() {
    std::set<int> twins(twin_.begin(), twin_.end());
    std::vector<std::string> missing, more;
    for (std::size_t i = 0; i < trusted_.vertices().size(); ++i) {
      const int vertex = static_cast<int>(i);
      if (trusted_.vertices()[i].is_switch || twins.contains(vertex)) continue;
      missing.push_back(trusted_.vertices()[i].name);
      const int host = result_.add_host(missing.back());
      result_.set_source(host, trusted_.source());
      for (const int leaf : trusted_leaves(vertex)) {
        Cable cable{standing_for(leaf).front(), host};
        cable.from = cable.rate_from = trusted_.source();
        result_.keep_cable(std::move(cable));
      }
    }
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      const FabricVertex& vertex = detailed_.vertices()[i];
      if (!vertex.is_switch && twin_[i] < 0) more.push_back(vertex.name);
    }
    if (!missing.empty()) say_missing(missing, trusted_.source(), detailed_.source());
    // A job's own addresses are expected to name no more than the job's hosts.
    if (!more.empty() && more.size() < common_) {
      say_missing(more, detailed_.source(), trusted_.source());
    }
  }
  void say_missing(const std::vector<std::string>& hosts, FabricSource known,
                   FabricSource unknown) {
    result_.remark(fmt::format("{} of {} {} not in {}: {}", hosts.size() == 1 ? "a host" : "hosts",
                               name_of(known), hosts.size() == 1 ? "is" : "are", name_of(unknown),
                               some_names(hosts)));
  }

  void compare_levels() {
    const auto count = [](const Fabric& fabric) { return levels_of(fabric).size(); };
    const std::size_t told = count(trusted_), found = count(detailed_);
    if (told <= 2 || told == found) return;  // many descriptions are of leaf switches alone
    result_.remark(
        fmt::format("{} tells of {} levels of switches, {} of {}; the cables are those of {}",
                    name_of(trusted_.source()), told - 1, name_of(detailed_.source()), found - 1,
                    name_of(detailed_.source())));
  }

  Fabric trusted_, detailed_;
  std::vector<std::vector<int>> trusted_leaves_, detailed_leaves_;
  Fabric result_{trusted_.source()};
  std::vector<int> twin_, copy_of_;  // by vertex of `detailed`
  std::size_t common_ = 0;
  std::map<int, int> matched_;                   // leaf of `detailed` to one of `trusted`
  std::map<int, std::vector<int>> detailed_of_;  // and back
  std::set<int> known_;                          // switches of `detailed` with hosts of both
  std::map<int, int> made_;                      // leaf of `trusted` to a switch of the result
  std::set<int> moved_;                          // hosts of `detailed`
};

}  // namespace

std::vector<int> add_nodes(Fabric& fabric, const std::vector<std::string>& names,
                           std::vector<std::string>* missing) {
  const Hosts known(fabric);
  const std::vector<int> found = match_nodes(names, known.names);
  std::vector<int> result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (found[i] >= 0) {
      result.push_back(known.vertices[static_cast<std::size_t>(found[i])]);
      continue;
    }
    const bool is_new = !fabric.host(names[i]);
    if (is_new && missing != nullptr) missing->push_back(names[i]);
    result.push_back(fabric.add_host(names[i]));
  }
  return result;
}

std::optional<int> find_node(const Fabric& fabric, const std::string& name) {
  const Hosts known(fabric);
  const int found = match_nodes({name}, known.names).front();
  if (found < 0) return {};
  return known.vertices[static_cast<std::size_t>(found)];
}

Fabric merge_fabrics(Fabric trusted, Fabric detailed) {
  return Merge(std::move(trusted), std::move(detailed)).merged();
}

}  // namespace trireme
