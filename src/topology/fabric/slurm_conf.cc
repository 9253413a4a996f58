// Slurm's topology.conf, and what scontrol prints of it.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/topology/fabric.h"

#include "topology/fabric/slurm_lines.h"
#include "topology/fabric/slurm_tree.h"

namespace trireme {
namespace {

constexpr int kMostNested = 8;  // files that include one another
constexpr std::size_t kMostIncluded = 256;

// What is said of switches and blocks, and what says nothing of the fabric.
constexpr std::array<std::string_view, 10> kKeys = {
    "switchname", "blockname", "nodes",      "switches",   "linkspeed",
    "level",      "blocksize", "blocksizes", "blockindex", "aggregatedblock"};

// Names in quotes may have blanks between them.
std::string as_list(std::string text) {
  for (char& c : text) {
    if (c == ' ' || c == '\t') c = ',';
  }
  std::string list;
  for (const char c : text) {
    if (c != ',' || (!list.empty() && list.back() != ',')) list += c;
  }
  if (!list.empty() && list.back() == ',') list.pop_back();
  return list;
}

class ConfReader {
 public:
  ConfReader(const std::string& origin, const ReadIncluded& read_included)
      : origin_(origin), read_included_(read_included), tree_(origin) {}

  Fabric read(std::string_view text) {
    read_text(text);
    add_blocks();
    if (tree_.empty()) {
      throw ConfigError(
          fmt::format("{}: no line describes a switch (SwitchName=...) or a block "
                      "(BlockName=...) of Slurm's topology",
                      shown(origin_)));
    }
    return tree_.fabric();
  }

 private:
  void read_text(std::string_view text) {
    for_each_slurm_line(text, [&](const std::string& line, int number) {
      if (const auto included = included_in(line)) {
        remark_rest(included->rest, "the end of the line", number);
        include(included->file, number);
      } else {
        read_line(line, number);
      }
    });
  }

  // A file may describe a tree and blocks of the same nodes; Slurm takes one of them.
  void add_blocks() {
    if (!tree_.empty() && !blocks_.empty()) {
      tree_.enter(blocks_.front().origin);
      tree_.remark(blocks_.front().line,
                   fmt::format("{} of BlockName beside the switches; these count",
                               blocks_.size() == 1 ? "a line" : "lines"));
      return;
    }
    for (const Block& block : blocks_) {
      tree_.enter(block.origin);
      tree_.add_block(block.name, block.nodes, block.line);
    }
  }

  void include(const std::string& file, int number) {
    const std::string where = tree_.where(number) + ": Include";
    if (!read_included_) {
      tree_.remark(number, fmt::format("Include {} is not followed", shown(file)));
      return;
    }
    if (nested_ == kMostNested || included_ == kMostIncluded) {
      throw ConfigError(fmt::format(
          "{} {}: at most {} files are read, each from at most {} that include one another", where,
          shown(file), kMostIncluded, kMostNested));
    }
    ++nested_;
    ++included_;
    const std::string text = read_included_(where, file);
    const std::string before = tree_.origin();
    tree_.enter(file);
    read_text(text);
    tree_.enter(before);
    --nested_;
  }

  void remark_rest(const std::string& rest, const char* expected, int number) {
    if (rest.empty()) return;
    tree_.remark(number, fmt::format("'{}' is not understood; expected {}",
                                     shown(rest, kMostOfLine), expected));
  }

  void read_line(const std::string& line, int number) {
    const SlurmPairs read = slurm_pairs_of(line);
    remark_rest(read.rest, "KEY=VALUE", number);
    std::map<std::string_view, std::string> values;
    for (const SlurmPair& pair : read.pairs) {
      if (std::ranges::find(kKeys, pair.key) == kKeys.end()) {
        tree_.remark(number, fmt::format("the key '{}' is not known; it is left out",
                                         shown(pair.key, kMostOfLine)));
      } else if (values.contains(pair.key)) {
        tree_.remark(number, fmt::format("'{}' a second time; the last one counts", pair.key));
      }
      values[pair.key] = pair.value == "(null)" ? "" : pair.value;
    }
    const auto list = [&](const char* key) { return as_list(values[key]); };
    if (values.contains("blockname")) {
      blocks_.push_back({values["blockname"], list("nodes"), tree_.origin(), number});
    } else if (values.contains("switchname")) {
      // scontrol, which tells levels, also lists the nodes below the switches below a switch.
      const std::string below = list("switches");
      const bool nodes_are_below = values.contains("level") && !below.empty();
      tree_.add_switch(values["switchname"], below, nodes_are_below ? "" : list("nodes"), number);
    } else if (values.contains("nodes") || values.contains("switches")) {
      if (!values.contains("aggregatedblock")) {
        tree_.remark(number, "neither SwitchName nor BlockName says of what these are");
      }
    }
  }

  static constexpr std::size_t kMostOfLine = 60;  // characters of what was not understood

  struct Block {
    std::string name, nodes, origin;
    int line;
  };

  std::string origin_;
  const ReadIncluded& read_included_;
  SlurmTree tree_;
  std::vector<Block> blocks_;
  int nested_ = 0;
  std::size_t included_ = 0;
};

}  // namespace

Fabric read_slurm_topology(std::string_view text, const std::string& origin,
                           const ReadIncluded& read_included) {
  return ConfReader(origin, read_included).read(text);
}

}  // namespace trireme
