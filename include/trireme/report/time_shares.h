// Where the time of a run went.
#pragma once

namespace trireme {

// In seconds, of some steps. Communication counts where a rank waited for it, data likewise; each
// is that of the slowest rank.
struct TimeSpent {
  double step_seconds = 0.0;
  double communication_seconds = 0.0;
  double data_seconds = 0.0;
  double checkpoint_seconds = 0.0;  // beside the steps
};

// Parts of the whole, checkpoints included; their sum is 1.
struct TimeShares {
  double computation = 1.0;
  double communication = 0.0;  // exposed
  double data = 0.0;
  double checkpoint = 0.0;
};
TimeShares shares_of(const TimeSpent& spent);

}  // namespace trireme
