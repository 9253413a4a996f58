#include "ending.h"

#include <array>
#include <csignal>
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
constexpr double kReadsLinesSeconds = 0.1;

void on_exit_in_the_run(int status, void* argument) {
  auto& state = *static_cast<ExitGuard::State*>(argument);
  if (!state.armed.exchange(false)) return;
  report_line(
      fmt::format("{}: something called exit({}) in the middle of the run", state.who, status));
  abort_job(static_cast<int>(ExitStatus::kHangOrLostRank));
}

// What to do if MPI's last call crashes. It is global because a signal handler cannot get it any
// other way.
struct LastWords {
  std::array<char, 64> text{};  // for the launcher, in PMI's first wire protocol
  std::size_t length = 0;
  int socket = -1;
  int status = 0;
};
LastWords last_words;

void end_after_crash(int) {
  if (last_words.socket < 0) _exit(last_words.status);
  // mpiexec reads the status and ends all ranks with it. If we just exited, mpiexec would report
  // an accident.
  if (write(last_words.socket, last_words.text.data(), last_words.length) < 0) {
    _exit(last_words.status);
  }
  while (true) pause();  // until the deadline at the latest
}

// A library that failed earlier (HDF5, closing a file on a full disk) may leave MPI in a state in
// which MPI_Finalize crashes. The run is over, so its own status counts.
void keep_status_in_crashes(int status) {
  const char* socket = std::getenv("PMI_FD");
  last_words.socket = socket == nullptr ? -1 : std::atoi(socket);
  last_words.status = status;
  const auto end = fmt::format_to_n(last_words.text.data(), last_words.text.size(),
                                    "cmd=abort exitcode={}\n", status);
  last_words.length = end.size;
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) std::signal(signal, end_after_crash);
}

}  // namespace

ExitTimer::ExitTimer(double seconds, int status)
    : off_(std::make_shared<std::atomic<bool>>(false)) {
  start_quiet_thread([off = off_, seconds, status] {
    usleep(static_cast<useconds_t>(seconds * 1e6));
    if (!*off) _exit(status);
  }).detach();
}

void abort_job(int status) {
  const ExitTimer deadline(kLastCallsSeconds, status);
  // The fault has been reported. MPI's own message would come after it and say less.
  if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
    dup2(nowhere, STDERR_FILENO);
  }
  // The launcher reads our lines and MPI's abort from different pipes, and may see the abort first.
  usleep(static_cast<useconds_t>(kReadsLinesSeconds * 1e6));
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

void end_after_fault(const std::string& who, const std::function<void()>& act) {
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  start_quiet_thread([ended, who] {
    usleep(static_cast<useconds_t>(kFaultSeconds * 1e6));
    if (*ended) return;
    report_line(
        fmt::format("{}: after a fault, communication between GPUs did not end within {:g} s", who,
                    kFaultSeconds));
    abort_job(static_cast<int>(ExitStatus::kHangOrLostRank));
  }).detach();
  act();
  *ended = true;
}

void finish_job(int status) {
  std::fflush(nullptr);
  ExitTimer deadline(kLastCallsSeconds, status);
  keep_status_in_crashes(status);
  MPI_Finalize();
  deadline.call_off();
  std::exit(status);
}

ExitGuard::ExitGuard(std::string who) : state_(new State) {
  state_->who = std::move(who);
  on_exit(&on_exit_in_the_run, state_);
}

}  // namespace trireme
