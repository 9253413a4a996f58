#include "topology/fabric/slurm_tree.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"

namespace trireme {

void SlurmTree::enter(const std::string& origin) {
  if (origin != origins_.back()) origins_.push_back(origin);
}

std::string SlurmTree::where(int line) const {
  return fmt::format("{}, line {}", shown(origins_.back()), line);
}

void SlurmTree::remark(int line, const std::string& what) {
  fabric_.remark(fmt::format("{}: {}", where(line), what));
}

bool SlurmTree::is_new(const std::string& kind, const std::string& name, int line) {
  if (!name.empty() && seen_.insert(name).second) return true;
  remark(line, name.empty() ? fmt::format("a {} without a name", kind)
                            : fmt::format("{} '{}' is described a second time", kind, shown(name)));
  return false;
}

void SlurmTree::add_switch(const std::string& name, const std::string& switches,
                           const std::string& nodes, int line) {
  if (!is_new("switch", name, line)) return;
  const int self = fabric_.add_switch(name);
  if (!nodes.empty() && !switches.empty()) {
    remark(line, fmt::format("switch '{}' has nodes and switches below it; the nodes count",
                             shown(name)));
    return add_nodes(self, nodes, line);
  }
  for (const std::string& child : names(switches, line)) {
    if (child == name) {
      remark(line, fmt::format("switch '{}' is below itself", shown(name)));
      continue;
    }
    below_.push_back({self, fabric_.add_switch(child), line, origins_.size() - 1});
  }
  add_nodes(self, nodes, line);
}

void SlurmTree::add_block(const std::string& name, const std::string& nodes, int line) {
  if (!is_new("block", name, line)) return;
  const int self = fabric_.add_switch(name);
  fabric_.add_cable({fabric_.add_switch("all blocks"), self});
  add_nodes(self, nodes, line);
}

void SlurmTree::add_nodes(int self, const std::string& nodes, int line) {
  for (const std::string& node : names(nodes, line)) {
    if (!cabled_.insert(node).second) {
      remark(line, fmt::format("node '{}' is below a second switch", shown(node)));
      continue;
    }
    fabric_.add_cable({self, fabric_.add_host(node)});
  }
}

std::vector<std::string> SlurmTree::names(const std::string& list, int line) {
  try {
    std::vector<std::string> result = expand_node_list(list, kMostNames - expanded_);
    expanded_ += result.size();
    return result;
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", where(line), error.what()));
  }
}

std::vector<std::size_t> SlurmTree::loops() const {
  enum class State : char { kNew, kOpen, kDone };
  std::vector<State> states(fabric_.vertices().size(), State::kNew);
  std::vector<std::vector<std::size_t>> ways(states.size());
  for (std::size_t i = 0; i < below_.size(); ++i) {
    ways[static_cast<std::size_t>(below_[i].upper)].push_back(i);
  }
  std::vector<std::size_t> found;
  std::vector<std::size_t> open;  // the way down to a switch; its last way is taken off `ways`
  for (std::size_t top = 0; top < states.size(); ++top) {
    if (states[top] != State::kNew) continue;
    states[top] = State::kOpen;
    for (open.push_back(top); !open.empty();) {
      auto& left = ways[open.back()];
      if (left.empty()) {
        states[open.back()] = State::kDone;
        open.pop_back();
        continue;
      }
      const std::size_t way = left.back();
      left.pop_back();
      const auto lower = static_cast<std::size_t>(below_[way].lower);
      if (states[lower] == State::kOpen) found.push_back(way);
      if (states[lower] != State::kNew) continue;
      states[lower] = State::kOpen;
      open.push_back(lower);
    }
  }
  std::ranges::sort(found);
  return found;
}

void SlurmTree::remark_undescribed() {
  std::vector<std::string> names;
  for (const Below& below : below_) {
    const std::string& name = fabric_.vertices()[static_cast<std::size_t>(below.lower)].name;
    if (!seen_.contains(name)) names.push_back(name);
  }
  if (names.empty()) return;
  fabric_.remark(fmt::format("{}: switches are named below others and described nowhere: {}",
                             shown(origins_.front()), shown(node_list(std::move(names)))));
}

Fabric SlurmTree::fabric() {
  const std::vector<std::size_t> left_out = loops();
  for (std::size_t i = 0; i < below_.size(); ++i) {
    const Below& below = below_[i];
    if (!std::ranges::binary_search(left_out, i)) {
      fabric_.add_cable({below.upper, below.lower});
      continue;
    }
    const auto name = [&](int vertex) {
      return shown(fabric_.vertices()[static_cast<std::size_t>(vertex)].name);
    };
    fabric_.remark(fmt::format("{}, line {}: switch '{}' is below itself, by way of '{}'",
                               shown(origins_[below.origin]), below.line, name(below.upper),
                               name(below.lower)));
  }
  remark_undescribed();
  fabric_.find_levels();
  return std::move(fabric_);
}

}  // namespace trireme
