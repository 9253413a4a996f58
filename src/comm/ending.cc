#include "ending.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include "trireme/base/exit_status.h"
#include "trireme/base/log.h"

#include "thread_util.h"

namespace trireme {
namespace {

constexpr double kLastCallsSeconds = 1.0;

void on_exit_in_the_run(int status, void* argument) {
  auto& state = *static_cast<ExitGuard::State*>(argument);
  if (!state.armed.exchange(false)) return;
  report_line(
      fmt::format("{}: something called exit({}) in the middle of the run", state.who, status));
  abort_job(static_cast<int>(ExitStatus::kHangOrLostRank));
}

}  // namespace

Deadline::Deadline(double seconds, int status) : off_(std::make_shared<std::atomic<bool>>(false)) {
  start_quiet_thread([off = off_, seconds, status] {
    usleep(static_cast<useconds_t>(seconds * 1e6));
    if (!*off) _exit(status);
  }).detach();
}

void abort_job(int status) {
  const Deadline deadline(kLastCallsSeconds, status);
  // The fault has been told; MPI's own words would come after it, and say less.
  if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
    dup2(nowhere, STDERR_FILENO);
  }
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

void finish_job(int status) {
  std::fflush(nullptr);
  Deadline deadline(kLastCallsSeconds, status);
  MPI_Finalize();
  deadline.call_off();
  std::exit(status);
}

ExitGuard::ExitGuard(std::string who) : state_(new State) {
  state_->who = std::move(who);
  on_exit(&on_exit_in_the_run, state_);
}

}  // namespace trireme
