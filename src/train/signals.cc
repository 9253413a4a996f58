#include "trireme/train/signals.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/exit_status.h"
#include "trireme/base/log.h"
#include "trireme/base/thread.h"

namespace trireme {
namespace {

struct NamedSignal {
  int number;
  const char* name;
  const char* sender;  // the usual one
};
constexpr NamedSignal kStopSignals[] = {{SIGTERM, "SIGTERM", "by scancel or a preemption"},
                                        {SIGINT, "SIGINT", "by Ctrl-C"},
                                        {SIGUSR1, "SIGUSR1", "before a job's time limit"},
                                        {SIGUSR2, "SIGUSR2", "before a job's time limit"},
                                        {SIGXCPU, "SIGXCPU", "at a limit of processor time"}};

constexpr double kSecondInterruptSeconds = 1.0;  // a launcher may pass one Ctrl-C on twice
constexpr double kLongStepSeconds = 2.0;

double seconds_since(std::int64_t ns) {
  return static_cast<double>(now_ns() - ns) * 1e-9;
}

sigset_t set_of(const std::vector<int>& numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  return set;
}

}  // namespace

std::vector<int> stop_signals() {
  std::vector<int> numbers;
  for (const NamedSignal& signal : kStopSignals) {
    struct sigaction action {};
    sigaction(signal.number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) numbers.push_back(signal.number);
  }
  return numbers;
}

StopSignals::StopSignals() : numbers_(stop_signals()) {
  if (numbers_.empty()) return;
  const sigset_t set = set_of(numbers_);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &set, &before);
  try {
    thread_ = start_thread("signals", [this] { wait(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

StopSignals::~StopSignals() {
  ending_ = true;
  // One of the signals, to the thread alone, wakes it: a wait with a time limit would make each
  // program end later by as much.
  if (thread_.joinable()) pthread_kill(thread_.native_handle(), numbers_.front());
}

void StopSignals::wait() {
  const sigset_t set = set_of(numbers_);
  std::int64_t interrupted_ns = 0;  // by the first SIGINT
  while (true) {
    const int number = sigwaitinfo(&set, nullptr);
    if (ending_) return;
    if (number < 0) continue;
    if (number == SIGINT && interrupted_ns != 0 &&
        seconds_since(interrupted_ns) >= kSecondInterruptSeconds) {
      _exit(static_cast<int>(ExitStatus::kInterruptedTwice));
    }
    if (number == SIGINT && interrupted_ns == 0) interrupted_ns = now_ns();
    int none = 0;
    if (arrived_.compare_exchange_strong(none, number)) tell(number);
  }
}

void StopSignals::step_begins(double seconds) const {
  step_seconds_ = seconds;
  step_ns_ = now_ns();
}

void StopSignals::tell(int number) const {
  const std::int64_t begin = step_ns_;
  if (begin == 0) return;
  const double expected = step_seconds_;
  const double left = expected - seconds_since(begin);
  if (expected > 0.0 && expected < kLongStepSeconds) return;
  const auto* const signal = std::ranges::find(kStopSignals, number, &NamedSignal::number);
  try {
    print_line(words_on_stop(signal->name, left));
  } catch (const std::exception&) {
    // Standard output is closed or full, which the run itself finds.
  }
}

std::string words_on_sender(int number) {
  const auto* const signal = std::ranges::find(kStopSignals, number, &NamedSignal::number);
  if (signal == std::end(kStopSignals)) return "by a signal";
  return fmt::format("by {} (as {})", signal->name, signal->sender);
}

std::string words_on_stop(const std::string& signal, double seconds) {
  std::string words = signal + ": stops after this step";
  if (seconds >= 1.0) words += fmt::format(", about {:.0f} s", seconds);
  return signal == "SIGINT" ? words + "; a second one ends the run at once" : words;
}

}  // namespace trireme
