#include "trireme/plan/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "plan/replay_communication.h"
#include "plan/replay_streams.h"

namespace trireme::plan {
namespace {

double sum_of(const std::map<std::string, double>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0,
                         [](double sum, const auto& one) { return sum + one.second; });
}

}  // namespace

double RankTimes::all_exposed() const {
  return sum_of(exposed);
}
double RankTimes::all_late() const {
  return sum_of(late);
}

Replay replay(const std::vector<ReplayedRank>& ranks, const ReplayCosts& costs,
              std::vector<Trace>* traces) {
  ReplayClock clock;
  ReplayCommunication communication(ranks, costs, clock);
  ReplayStreams streams(ranks, costs, clock, communication);
  streams.run();
  // The clock may have come further, to ends that were planned and then came earlier or later.
  Replay result{.seconds = communication.last_end(), .ranks = streams.times()};
  for (const RankTimes& times : result.ranks) result.seconds = std::max(result.seconds, times.end);
  if (traces != nullptr) *traces = streams.take_traces();
  return result;
}

}  // namespace trireme::plan
