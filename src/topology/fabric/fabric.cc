#include "trireme/topology/fabric.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kRemarks = 100;

}  // namespace

std::string_view name_of(FabricSource source) {
  switch (source) {
    case FabricSource::kSlurm:
      return "Slurm";
    case FabricSource::kDump:
      return "ibnetdiscover";
    case FabricSource::kSysfs:
      return "sysfs";
    case FabricSource::kMeasured:
      return "measurement";
    case FabricSource::kMadeUp:
      return "assumption";
  }
  throw InternalError("unknown source of a fabric");
}

std::optional<int> Fabric::host(std::string_view name) const {
  const auto found = hosts_.find(std::string(name));
  if (found == hosts_.end()) return std::nullopt;
  return found->second;
}

int Fabric::add(std::unordered_map<std::string, int>& names, const std::string& name,
                bool is_switch) {
  const auto [entry, is_new] = names.try_emplace(name, static_cast<int>(vertices_.size()));
  if (is_new) vertices_.push_back({name, is_switch, 0, source_});
  return entry->second;
}

int Fabric::add_host(const std::string& name) {
  return add(hosts_, name, false);
}

int Fabric::add_switch(const std::string& name) {
  return add(switches_, name, true);
}

void Fabric::add_cable(Cable cable) {
  cable.from = cable.rate_from = source_;
  keep_cable(std::move(cable));
}

void Fabric::set_rate(std::size_t cable, double bytes_per_second, FabricSource from) {
  cables_.at(cable).bytes_per_second = bytes_per_second;
  cables_.at(cable).rate_from = from;
}

void Fabric::set_source(int vertex, FabricSource from) {
  vertices_.at(static_cast<std::size_t>(vertex)).from = from;
}

void Fabric::set_above(int vertex) {
  vertices_.at(static_cast<std::size_t>(vertex)).is_above = true;
}

void Fabric::set_level(int vertex, int level) {
  vertices_.at(static_cast<std::size_t>(vertex)).level = level;
}

void Fabric::remark(std::string text) {
  if (remarks_.size() < kRemarks) {
    remarks_.push_back(std::move(text));
  } else if (remarks_.size() == kRemarks) {
    remarks_.push_back("and more of the kind");
  }
}

Fabric make_fat_tree(const std::vector<FatTreeLevel>& levels, double host_bytes_per_second) {
  Fabric fabric(FabricSource::kMadeUp);
  int hosts = 1;
  for (const FatTreeLevel& level : levels) hosts *= level.children;
  std::vector<int> below;
  for (int i = 0; i < hosts; ++i) below.push_back(fabric.add_host(fmt::format("host{}", i)));
  double up = host_bytes_per_second;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    std::vector<int> switches;
    for (std::size_t child = 0; child < below.size(); ++child) {
      const std::size_t at = child / static_cast<std::size_t>(levels[level].children);
      if (at == switches.size()) {
        switches.push_back(fabric.add_switch(fmt::format("switch{}.{}", level + 1, at)));
      }
      fabric.add_cable({switches[at], below[child], up});
    }
    below = std::move(switches);
    up = levels[level].up_bytes_per_second;
  }
  fabric.find_levels();
  return fabric;
}

}  // namespace trireme
