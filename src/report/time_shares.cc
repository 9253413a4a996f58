#include "trireme/report/time_shares.h"

#include <algorithm>

namespace trireme {

TimeShares shares_of(const TimeSpent& spent) {
  const double total = spent.step_seconds + spent.checkpoint_seconds;
  if (!(total > 0.0)) return {};
  // One rank may be the slowest in communication and another in reading, so that the sum exceeds
  // the step.
  const double waits = spent.communication_seconds + spent.data_seconds;
  const double scale = waits > spent.step_seconds ? spent.step_seconds / waits : 1.0;
  TimeShares shares;
  shares.communication = scale * spent.communication_seconds / total;
  shares.data = scale * spent.data_seconds / total;
  shares.checkpoint = spent.checkpoint_seconds / total;
  shares.computation = std::max(0.0, 1.0 - shares.communication - shares.data - shares.checkpoint);
  return shares;
}

}  // namespace trireme
