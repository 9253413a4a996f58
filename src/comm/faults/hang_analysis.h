// Finds the ranks that are to blame for a hang.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/faults/rank_report.h"

namespace trireme {

struct HangVerdict {
  std::vector<int> culprits;  // world ranks in rising order
  std::string line;           // for the user
};

// Chooses the judges: the ranks that get the reports of a hang from all others. They are a few, in
// rising order, on nodes far apart, so that some survive if many nodes are lost at once. `hosts`
// has the hosts of all ranks. If there are fewer nodes than judges, some judges share a node.
std::vector<int> choose_judges(const std::vector<std::string>& hosts);

// Why the watchdog of a rank sends something about a hang.
enum class HangNews {
  kFound,   // an operation of this rank takes too long: it raises the alarm
  kAlarm,   // the alarm was raised, by this rank or another: judges pass it on
  kReport,  // what this rank waits for
};

// Returns the ranks that `rank` of a world of `ranks` sends such news to, never itself. All tell
// only the judges. The judges tell everyone of the alarm. So the messages of all ranks grow with
// the number of ranks, and not with its square.
std::vector<int> receivers_of(HangNews news, int rank, const std::vector<int>& judges, int ranks);

// Finds the culprits from the reports of all ranks (nullopt for a rank that did not answer). Ranks
// wait for the members that have not begun the same operation. A rank that waits for no other, and
// ranks that wait for each other in a cycle, hold up the rest. The line names the culprits, and no
// other rank, as "rank N (host)". If several ranks do not answer and no other rank on their hosts
// does, it names the hosts instead: "n3, n4 cannot be reached from n1 (ranks 2, 3)". n1 is the host
// of the judging rank: if the network is cut in two, each part says this of the other.
HangVerdict analyse_hang(const std::vector<std::optional<RankReport>>& reports,
                         const std::vector<std::string>& hosts, double timeout_s);

}  // namespace trireme
