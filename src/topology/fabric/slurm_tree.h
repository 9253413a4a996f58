// The switches, blocks and nodes of one of Slurm's descriptions while it is read.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/topology/fabric.h"

namespace trireme {

// Lists of names are as Slurm writes them; empty: none. `line` is where the description says it.
// Throws ConfigError for a list that is malformed or makes more than kMostNames names.
class SlurmTree {
 public:
  explicit SlurmTree(std::string origin) : origins_{std::move(origin)} {}

  // Says that what follows is from this file.
  void enter(const std::string& origin);
  const std::string& origin() const { return origins_.back(); }
  std::string where(int line) const;  // "topology.conf, line 3"

  // A switch that has nodes has no switches below it, as for Slurm.
  void add_switch(const std::string& name, const std::string& switches, const std::string& nodes,
                  int line);
  // Adds a block. Blocks are below one more switch.
  void add_block(const std::string& name, const std::string& nodes, int line);
  void remark(int line, const std::string& what);

  bool empty() const { return seen_.empty(); }
  // Returns what was added, without loops and with its levels. Call once.
  Fabric fabric();

 private:
  struct Below {
    int upper, lower;  // switches
    int line;
    std::size_t origin;
  };

  bool is_new(const std::string& kind, const std::string& name, int line);
  void add_nodes(int self, const std::string& nodes, int line);
  std::vector<std::string> names(const std::string& list, int line);
  // Returns those of below_, sorted, that lead from a switch to one above it.
  std::vector<std::size_t> loops() const;

  void remark_undescribed();

  std::vector<std::string> origins_;  // files; the last one is being read
  Fabric fabric_{FabricSource::kSlurm};
  std::set<std::string> seen_, cabled_;
  std::vector<Below> below_;
  std::size_t expanded_ = 0;
};

}  // namespace trireme
