// Where the time of a run went.
#pragma once

namespace trireme {

// The time of some steps, in seconds. Communication and data count only as far as a rank waited for
// them; each is the time of the slowest rank.
struct TimeSpent {
  double step_seconds = 0.0;
  double communication_seconds = 0.0;
  double data_seconds = 0.0;
  double checkpoint_seconds = 0.0;  // not part of the steps
};

// Shares of the total time, checkpoints included. Their sum is 1.
struct TimeShares {
  double computation = 1.0;
  double communication = 0.0;  // exposed
  double data = 0.0;
  double checkpoint = 0.0;
};
TimeShares shares_of(const TimeSpent& spent);

}  // namespace trireme
