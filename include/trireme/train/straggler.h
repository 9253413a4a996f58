// Finds the ranks, nodes and links that hold up a run. In a synchronous step all ranks take the
// same time; the one that the others wait for is the one that waits least. So each rank's own time
// (computing, waiting for data) is compared with that of ranks that do the same work. A slow link
// shows in everybody's waiting, so links are measured apart, where all ranks stand still. A
// processor that is taken away while its rank moves data, not while it computes, shows in neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/report/rank_table.h"

namespace trireme {

// Returns the link rate of each node, in bytes/s; 0: not measured. Links are measured between
// neighbours on the ring of nodes, pair by pair: `to_previous[i]` and `to_next[i]` are the seconds
// that node i measured for `bytes` each way; 0: not measured. The shorter time of a pair's two
// nodes counts, since the other node may have waited for its partner. The faster of a node's two
// pairs counts, since a node is at fault only if both are slow.
std::vector<double> link_rates(std::span<const double> to_previous, std::span<const double> to_next,
                               double bytes);

class StragglerDetector {
 public:
  // A rank, node or link is reported as slow after this many slow windows in a row, and as normal
  // again after as many normal ones.
  static constexpr int kWindows = 2;
  // Limits for a rank's own time over the median of its peers, which are the other ranks of its
  // pipeline stage with as many micro-batches. A slow rank also loses at least kLostPart of a step.
  static constexpr double kSlow = 1.2, kNormal = 1.1, kLostPart = 0.05;
  // The same for its own time over the median of its own earlier windows, used where all its peers
  // are on its node or it has none.
  static constexpr double kSlowerThanBefore = 1.5, kAsBefore = 1.25;
  // Limits for the median rate of the other nodes' links over a link's own rate. With two nodes,
  // the median of the link's earlier windows is used.
  static constexpr double kSlowLink = 2.0, kNormalLink = 1.5;

  // Judges the next window: fills in times_peers and stragglers of `table`, and returns lines for
  // what has changed.
  std::vector<std::string> look(RankTable& table);

 private:
  struct Suspicion {
    int slow_windows = 0, normal_windows = 0;
    bool slow = false;
    std::int64_t since = 0;  // first step of the first slow window
    std::string text;        // describes the latest slow window
    double times = 0.0;      // Comparison::times in that window
    void see(bool is_slow, bool is_normal, std::int64_t first_step);
  };
  struct Past {  // the values of earlier windows that were not slow
    std::deque<double> values;
    void add(double value);
    double median() const;  // 0: too few values
  };
  struct Comparison {
    double times = 0.0;      // 0: nothing to compare with
    double reference = 0.0;  // seconds
    bool with_past = false;
  };
  struct Subject {
    std::string who, text;
    int node = 0;
    bool is_rank = false;
  };
  using Subjects = std::map<std::string, Subject>;

  void judge_ranks(RankTable& table);
  void judge_links(const RankTable& table);
  Comparison compare_rank(const RankTable& table, std::size_t rank, double with_peers) const;
  void judge_link(const RankTable& table, std::size_t node, const std::vector<double>& rates);
  bool has_slow_rank(const RankTable& table, std::size_t node) const;
  void add_ranks(const RankTable& table, Subjects& subjects) const;
  void add_links(const RankTable& table, Subjects& subjects) const;
  std::vector<std::string> changes(const Subjects& now, std::int64_t step);

  std::vector<Suspicion> ranks_, links_;
  std::vector<Past> ranks_past_, links_past_;
  Subjects told_;
};

}  // namespace trireme
