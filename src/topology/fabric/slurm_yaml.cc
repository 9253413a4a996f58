#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/topology/fabric.h"

#include "topology/fabric/slurm_tree.h"

namespace trireme {
namespace {

// A tree of nodes takes hundreds of times the memory of a short item's text.
constexpr std::size_t kMostYamlBytes = std::size_t{4} << 20;

int line_of(const YAML::Node& node) {
  return node.Mark().line + 1;
}

// Reads one topology. Keys that it does not know say nothing of the fabric.
class YamlReader {
 public:
  explicit YamlReader(const std::string& origin) : origin_(origin), tree_(origin) {}

  Fabric read(const YAML::Node& topology) {
    if (const YAML::Node tree = topology["tree"]; tree) {
      for (const YAML::Node& node : list(tree, "switches")) {
        tree_.add_switch(text(node, "switch"), text(node, "children"), text(node, "nodes"),
                         line_of(node));
      }
    } else if (const YAML::Node blocks = topology["block"]; blocks) {
      for (const YAML::Node& node : list(blocks, "blocks")) {
        tree_.add_block(text(node, "block"), text(node, "nodes"), line_of(node));
      }
    } else if (!topology["flat"]) {
      throw ConfigError(fmt::format("{}, line {}: a topology is a tree, a block or flat",
                                    shown(origin_), line_of(topology)));
    }
    return tree_.fabric();
  }

 private:
  // The items of a list of maps.
  std::vector<YAML::Node> list(const YAML::Node& node, const char* key) {
    const YAML::Node items = node.IsMap() ? node[key] : YAML::Node();
    std::vector<YAML::Node> result;
    if (!items || !items.IsSequence()) {
      tree_.remark(line_of(node), fmt::format("no list of {}", key));
      return result;
    }
    for (const YAML::Node& item : items) {
      if (item.IsMap()) {
        result.push_back(item);
      } else {
        tree_.remark(line_of(item), fmt::format("expected a map in the list of {}", key));
      }
    }
    return result;
  }
  std::string text(const YAML::Node& map, const char* key) {
    const YAML::Node value = map[key];
    if (!value || value.IsNull()) return "";
    if (value.IsScalar()) return value.Scalar();
    tree_.remark(line_of(value), fmt::format("expected names as the value of {}", key));
    return "";
  }

  std::string origin_;
  SlurmTree tree_;
};

YAML::Node parse(std::string_view text, const std::string& origin) {
  if (text.size() > kMostYamlBytes) {
    throw ConfigError(
        fmt::format("{}: {} bytes of YAML, and at most {} are read; topology.conf may be longer",
                    shown(origin), text.size(), kMostYamlBytes));
  }
  try {
    return YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    throw ConfigError(fmt::format("{}, line {}: no YAML: {}", shown(origin), error.mark.line + 1,
                                  shown(error.msg)));
  }
}

bool is_default(const YAML::Node& topology) {
  const YAML::Node value = topology["cluster_default"];
  return value && value.IsScalar() && value.as<bool>(false);
}

YAML::Node chosen_topology(const YAML::Node& all, const std::string& origin,
                           const std::string& wanted) {
  YAML::Node chosen;
  std::vector<std::string> names;
  if (all.IsSequence()) {
    for (const YAML::Node& item : all) {
      if (!item.IsMap() || !item["topology"] || !item["topology"].IsScalar()) continue;
      const std::string& name = item["topology"].Scalar();
      const bool better = names.empty() || (is_default(item) && !is_default(chosen));
      if (wanted.empty() ? better : name == wanted) chosen.reset(item);
      names.push_back(name);
    }
  }
  if (names.empty()) {
    throw ConfigError(
        fmt::format("{}: no list of topologies (- topology: NAME), as a topology.yaml "
                    "of Slurm has",
                    shown(origin)));
  }
  if (!chosen.IsMap()) {
    throw ConfigError(fmt::format("{}: no topology is called '{}'; there are {}", shown(origin),
                                  shown(wanted), shown(fmt::format("{}", fmt::join(names, ", ")))));
  }
  return chosen;
}

}  // namespace

bool is_slurm_yaml(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    const std::string_view words = line.substr(begin);
    return words.starts_with('-') || words.starts_with('%') || words.starts_with('[');
  }
  return false;
}

Fabric read_slurm_yaml(std::string_view text, const std::string& origin,
                       const std::string& topology) {
  return YamlReader(origin).read(chosen_topology(parse(text, origin), origin, topology));
}

}  // namespace trireme
