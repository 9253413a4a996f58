#include "comm/faults/start_limit.h"

#include <bit>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/exit_status.h"
#include "trireme/base/log.h"
#include "trireme/base/running_clock.h"
#include "trireme/base/thread.h"
#include "trireme/comm/launcher.h"

#include "comm/faults/ending.h"

namespace trireme {
namespace {

constexpr const char* kVariable = "TRIREME_MPI_INIT_LIMIT";
constexpr double kSeconds = 300.0;

}  // namespace

StartLimit::StartLimit() {
  const LaunchedTasks tasks = launched_tasks();
  const double limit = seconds_in_environment(kVariable, kSeconds, 0.001, 86'400);
  if (tasks.count == 1) return;  // waits for nobody
  // The first rank that ends makes a launcher end all, so others wait for it to speak.
  const double later = 2.0 * std::bit_width(static_cast<unsigned>(tasks.index));
  const auto watch = [this, tasks, limit, later] {
    RunningClock clock;
    while (clock.seconds() < limit + later) {
      if (over_) return;
      usleep(20'000);
    }
    report_line(
        fmt::format("rank {} of {} ({}): MPI has not started within {:g} s ({}): a rank may have "
                    "ended before it, "
                    "or a node cannot be reached",
                    tasks.index, tasks.count, node_name(), limit, kVariable));
    end_before_mpi(static_cast<int>(ExitStatus::kHangOrLostRank));
  };
  try {
    thread_ = start_thread("the limit of MPI's start", watch);
  } catch (const Error&) {
    // MPI needs threads, too. This rank must join the others all the same, to tell them.
  }
}

}  // namespace trireme
