// Who is to blame when nothing moves any more.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rank_report.h"

namespace trireme {

struct HangVerdict {
  std::vector<int> culprits;  // world ranks, rising
  std::string line;           // for the user
};

// The ranks that hear of a hang from all others, and judge: a few, rising, on nodes far apart, so
// that some are left where many nodes are lost at once. `hosts` of all ranks. Where there are fewer
// nodes than judges, some share one.
std::vector<int> choose_judges(const std::vector<std::string>& hosts);

// From the reports of all ranks (nothing where a rank did not answer): ranks wait for the members
// that have not begun the same operation; whoever waits for nobody, and whoever wait for each other
// in a circle, hold up the rest. The line names the culprits, and no other rank, by "rank N
// (host)". Where several ranks do not answer and nobody else on their hosts does, it names the
// hosts instead: "n3, n4 cannot be reached from n1 (ranks 2, 3)". n1 is the host of the rank that
// judges: where the network is cut in two, each part says this of the other.
HangVerdict analyse_hang(const std::vector<std::optional<RankReport>>& reports,
                         const std::vector<std::string>& hosts, double timeout_s);

}  // namespace trireme
