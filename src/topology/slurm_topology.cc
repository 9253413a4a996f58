#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/topology/fabric.h"

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

class SlurmReader {
 public:
  explicit SlurmReader(std::string origin) : origin_(std::move(origin)) {}

  Fabric read(std::string_view text) {
    for_each_line(text, [&](const std::string& line, int number) { read_line(line, number); });
    if (count_ == 0) {
      throw ConfigError(
          fmt::format("{}: no line describes a switch (SwitchName=...) or a block "
                      "(BlockName=...) of Slurm's topology",
                      shown(origin_)));
    }
    fabric_.find_levels();
    return std::move(fabric_);
  }

 private:
  void read_line(const std::string& line, int number) {
    const Pairs pairs = pairs_of(line);
    const bool is_block = pairs.contains("blockname");
    if (!is_block && !pairs.contains("switchname")) return;
    const std::string& name = pairs.at(is_block ? "blockname" : "switchname");
    if (name.empty() || !seen_.insert(name).second) {
      fabric_.remark(fmt::format("{}, line {}: {} '{}' is described a second time", shown(origin_),
                                 number, is_block ? "block" : "switch", shown(name)));
      return;
    }
    ++count_;
    const int self = fabric_.add_switch(name);
    if (is_block) fabric_.add_cable({fabric_.add_switch("all blocks"), self});
    const auto lower = pairs.find("switches");
    // scontrol also lists the nodes below the switches below a switch.
    if (lower != pairs.end() && !lower->second.empty() && lower->second != "(null)") {
      for (const std::string& child : names(lower->second, number)) {
        if (child == name) {
          fabric_.remark(fmt::format("{}, line {}: switch '{}' is below itself", shown(origin_),
                                     number, shown(name)));
          continue;
        }
        fabric_.add_cable({self, fabric_.add_switch(child)});
      }
      return;
    }
    const auto nodes = pairs.find("nodes");
    if (nodes == pairs.end() || nodes->second == "(null)") return;
    for (const std::string& node : names(nodes->second, number)) {
      if (!cabled_.insert(node).second) {
        fabric_.remark(fmt::format("{}, line {}: node '{}' is below a second switch",
                                   shown(origin_), number, shown(node)));
        continue;
      }
      fabric_.add_cable({self, fabric_.add_host(node)});
    }
  }
  std::vector<std::string> names(const std::string& list, int number) {
    try {
      std::vector<std::string> result = expand_node_list(list, kMostNames - expanded_);
      expanded_ += result.size();
      return result;
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}, line {}: {}", shown(origin_), number, error.what()));
    }
  }

  std::string origin_;
  Fabric fabric_{FabricSource::kSlurm};
  std::set<std::string> seen_, cabled_;
  std::size_t count_ = 0, expanded_ = 0;
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
  return SlurmReader(origin).read(text);
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

}  // namespace trireme
