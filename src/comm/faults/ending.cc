#include "comm/faults/ending.h"

#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <sys/time.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/exit_status.h"
#include "trireme/base/log.h"
#include "trireme/base/thread.h"
#include "trireme/comm/launcher.h"

namespace trireme {
namespace {

constexpr double kLastCallsSeconds = 1.0;
// The launcher reads our lines and an abort from different pipes, and may see the abort first. Then
// it ends without them.
constexpr useconds_t kReadsLines = 100'000;  // microseconds

void on_exit_in_the_run(int status, void* argument) {
  auto& state = *static_cast<ExitGuard::State*>(argument);
  if (!state.armed.exchange(false)) return;
  report_line(
      fmt::format("{}: something called exit({}) in the middle of the run", state.who, status));
  if (launched_tasks().count == 1) _exit(static_cast<int>(ExitStatus::kHangOrLostRank));
  abort_job(static_cast<int>(ExitStatus::kHangOrLostRank));
}

// The status with which the alarm ends the process.
volatile std::sig_atomic_t status_at_signal = 0;

void end_at_alarm(int) {
  _exit(status_at_signal);
}

// The timer of a process that cannot make a thread.
void set_alarm(double seconds, int status) {
  status_at_signal = status;
  std::signal(SIGALRM, end_at_alarm);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  itimerval timer{};
  timer.it_value.tv_sec = static_cast<time_t>(seconds);
  timer.it_value.tv_usec = static_cast<suseconds_t>(std::fmod(seconds, 1.0) * 1e6);
  setitimer(ITIMER_REAL, &timer, nullptr);
}

// What a process without MPI tells its launcher. It is global because a signal handler cannot get
// it any other way.
struct LastWords {
  std::array<char, 64> text{};  // PMI's abort, in its first wire protocol
  std::size_t length = 0;
  int socket = -1;
  int status = 0;
};
LastWords last_words;

void prepare_last_words(int status) {
  // srun has such a socket, too, and takes the status from the process itself.
  const char* socket = launched_tasks().launcher == "mpiexec" ? std::getenv("PMI_FD") : nullptr;
  last_words.socket = socket == nullptr ? -1 : std::atoi(socket);
  last_words.status = status;
  const auto end = fmt::format_to_n(last_words.text.data(), last_words.text.size(),
                                    "cmd=abort exitcode={}\n", status);
  last_words.length = end.size;
}

// mpiexec reads the status and ends all ranks with it. Of a rank that is just gone it would report
// an accident, with a status of its own (1 or 9). Safe in a signal handler.
[[noreturn]] void end_with_last_words(int) {
  const auto& words = last_words;
  if (words.socket >= 0) {
    usleep(kReadsLines);
    if (write(words.socket, words.text.data(), words.length) >= 0) {
      usleep(static_cast<useconds_t>(kLastCallsSeconds * 1e6));  // mpiexec ends it earlier
    }
  }
  _exit(words.status);
}

// A library that failed earlier (HDF5, closing a file on a full disk) may leave MPI in a state in
// which MPI_Finalize crashes. The run is over, so its own status counts.
void keep_status_in_crashes(int status) {
  prepare_last_words(status);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) {
    std::signal(signal, end_with_last_words);
  }
}

// What a StartGuard says; empty: there is none.
std::string line_of_start;

void end_with_line(int) {
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line_of_start.data(), line_of_start.size());
  end_with_last_words(0);
}

constexpr std::array kCrashes = {SIGABRT, SIGSEGV, SIGBUS};

}  // namespace

StartGuard::StartGuard(const std::string& line, int status) {
  line_of_start = "trireme: " + line + "\n";
  prepare_last_words(status);
  for (std::size_t i = 0; i < kCrashes.size(); ++i) {
    before_[i] = std::signal(kCrashes[i], end_with_line);
  }
  std::atexit([] {
    if (!line_of_start.empty()) end_with_line(0);
  });
}

StartGuard::~StartGuard() {
  for (std::size_t i = 0; i < kCrashes.size(); ++i) {
    const auto now = std::signal(kCrashes[i], before_[i]);
    if (now != end_with_line) std::signal(kCrashes[i], now);  // it is MPI's by now
  }
  line_of_start.clear();
}

ExitTimer::ExitTimer(double seconds, int status)
    : off_(std::make_shared<std::atomic<bool>>(false)) {
  try {
    start_thread("the end of the process", [off = off_, seconds, status] {
      usleep(static_cast<useconds_t>(seconds * 1e6));
      if (!*off) _exit(status);
    }).detach();
  } catch (const Error&) {
    set_alarm(seconds, status);
    by_alarm_ = true;
  }
}

void ExitTimer::call_off() {
  *off_ = true;
  if (!by_alarm_) return;
  const itimerval none{};
  setitimer(ITIMER_REAL, &none, nullptr);
}

void end_before_mpi(int status) {
  prepare_last_words(status);
  end_with_last_words(0);
}

void abort_job(int status) {
  const ExitTimer deadline(kLastCallsSeconds, status);
  // The fault has been reported. MPI's own message would come after it and say less.
  if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
    dup2(nowhere, STDERR_FILENO);
  }
  usleep(kReadsLines);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

void end_after_fault(const std::string& who, const std::function<void()>& act) {
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  std::optional<ExitTimer> silent;
  try {
    start_thread("the end of the process", [ended, who] {
      usleep(static_cast<useconds_t>(kFaultSeconds * 1e6));
      if (*ended) return;
      report_line(
          fmt::format("{}: after a fault, communication between GPUs did not end within {:g} s",
                      who, kFaultSeconds));
      abort_job(static_cast<int>(ExitStatus::kHangOrLostRank));
    }).detach();
  } catch (const Error&) {
    silent.emplace(kFaultSeconds, static_cast<int>(ExitStatus::kHangOrLostRank));
  }
  act();
  *ended = true;
  if (silent) silent->call_off();
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
