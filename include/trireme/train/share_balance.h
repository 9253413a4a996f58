// Decides when the shares of data replicas change (batch.balance auto), from what the watch of
// ranks has measured.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "trireme/report/rank_table.h"

namespace trireme {

class ShareBalance {
 public:
  // Shares change only where each of the last kWindows windows says that with those by the mean of
  // all a step would be shorter by kGain of it: speeds that only waver change none.
  static constexpr int kWindows = 3;
  static constexpr double kGain = 0.05;

  // `most`: micro-batches that a replica may have.
  explicit ShareBalance(int most) : most_(most) {}

  // Adds a window. What a replica takes for a micro-batch is what its slowest rank does. Each rank
  // of the table has at least one micro-batch.
  void look(const RankTable& window);

  struct Change {
    std::vector<int> shares;  // micro-batches of each replica
    std::string why;          // a line for the user
  };
  // What is due now; nothing where the shares stay.
  std::optional<Change> change() const;

  // Begins anew, where shares have changed.
  void begin() { windows_.clear(); }

 private:
  struct Window {
    std::vector<double> seconds;  // of each replica for a micro-batch
    std::vector<int> shares;
    double others = 0.0;  // of a step that no share changes: communication of who waits least
  };
  static double step_seconds(const Window& window, const std::vector<int>& shares);
  Window mean() const;

  int most_;
  std::deque<Window> windows_;
};

}  // namespace trireme
