#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/comm/launcher.h"
#include "trireme/topology/fabric.h"

#include "slurm_tree.h"

namespace trireme {
namespace {

// The key=value pairs of a line, by lower-case key.
using Pairs = std::map<std::string, std::string>;

Pairs pairs_of(std::string_view line) {
  Pairs pairs;
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') break;
    line.remove_prefix(begin);
    const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
    line.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    std::string key(word.substr(0, equals));
    std::transform(key.begin(), key.end(), key.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    pairs[key] = word.substr(equals + 1);
  }
  return pairs;
}

// Calls visit(line, number) for each line; a backslash at its end joins it with the next.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  std::string joined;
  int number = 0;
  while (!text.empty()) {
    ++number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const bool goes_on = !line.empty() && line.back() == '\\';
    if (goes_on) line.remove_suffix(1);
    joined += line;
    if (goes_on && !text.empty()) {
      joined += ' ';
      continue;
    }
    visit(joined, number);
    joined.clear();
  }
}

class ConfReader {
 public:
  explicit ConfReader(const std::string& origin) : origin_(origin), tree_(origin) {}

  Fabric read(std::string_view text) {
    for_each_line(text, [&](const std::string& line, int number) { read_line(line, number); });
    if (tree_.empty()) {
      throw ConfigError(
          fmt::format("{}: no line describes a switch (SwitchName=...) or a block "
                      "(BlockName=...) of Slurm's topology",
                      shown(origin_)));
    }
    return tree_.fabric();
  }

 private:
  void read_line(const std::string& line, int number) {
    const Pairs pairs = pairs_of(line);
    const auto value = [&](const char* key) {
      const auto found = pairs.find(key);
      return found == pairs.end() || found->second == "(null)" ? std::string() : found->second;
    };
    if (pairs.contains("blockname")) {
      tree_.add_block(value("blockname"), value("nodes"), number);
    } else if (pairs.contains("switchname")) {
      // scontrol also lists the nodes below the switches below a switch.
      const std::string below = value("switches");
      tree_.add_switch(value("switchname"), below, below.empty() ? value("nodes") : "", number);
    }
  }

  std::string origin_;
  SlurmTree tree_;
};

constexpr std::size_t kMostParents = 256;  // switches of one level on the way to a node

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  // A dot in brackets separates nothing.
  int depth = 0;
  std::string part;
  for (const char c : text) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == separator && depth == 0) {
      parts.push_back(std::move(part));
      part.clear();
    } else {
      part += c;
    }
  }
  parts.push_back(std::move(part));
  return parts;
}

}  // namespace

Fabric read_slurm_topology(std::string_view text, const std::string& origin) {
  return ConfReader(origin).read(text);
}

Fabric fabric_of_addresses(const std::vector<std::pair<std::string, std::string>>& addresses) {
  Fabric fabric(FabricSource::kSlurm);
  std::set<std::pair<int, int>> cabled;
  const auto connect = [&](int a, int b) {
    if (cabled.emplace(a, b).second) fabric.add_cable({a, b});
  };
  for (const auto& [address, pattern] : addresses) {
    const std::vector<std::string> parts = split(address, '.');
    const std::vector<std::string> kinds = split(pattern, '.');
    if (parts.size() != kinds.size() || kinds.back() != "node" || parts.back().empty()) {
      fabric.remark(fmt::format("the address '{}' does not fit its pattern '{}'", shown(address),
                                shown(pattern)));
      continue;
    }
    int below = fabric.add_host(parts.back());
    std::vector<int> children{below};
    for (std::size_t i = parts.size() - 1; i-- > 0;) {
      std::vector<int> parents;
      for (const std::string& name : expand_node_list(parts[i], kMostParents)) {
        parents.push_back(fabric.add_switch(name));
      }
      for (const int parent : parents) {
        for (const int child : children) connect(parent, child);
      }
      children = std::move(parents);
    }
  }
  fabric.find_levels();
  return fabric;
}

std::optional<std::pair<std::string, std::string>> own_address() {
  std::string address = environment("SLURM_TOPOLOGY_ADDR");
  if (match_nodes({split(address, '.').back()}, {node_name()}) != std::vector{0}) return {};
  return std::pair{std::move(address), environment("SLURM_TOPOLOGY_ADDR_PATTERN")};
}

}  // namespace trireme
