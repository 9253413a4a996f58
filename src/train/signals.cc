#include "trireme/train/signals.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

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

StopSignals::StopSignals(End unheard) : numbers_(stop_signals()), unheard_(std::move(unheard)) {
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

// The next signal; -1 where none arrives within so many seconds, if they are more than none.
int StopSignals::next_signal(double patience) const {
  const sigset_t set = set_of(numbers_);
  if (patience <= 0.0) return sigwaitinfo(&set, nullptr);
  const double whole = std::floor(patience);
  const timespec limit{static_cast<time_t>(whole), static_cast<long>((patience - whole) * 1e9)};
  return sigtimedwait(&set, nullptr, &limit);
}

void StopSignals::wait() {
  std::int64_t interrupted_ns = 0;  // by the first SIGINT
  std::int64_t limit_ns = 0;        // until which somebody has to ask; 0: nobody has to
  while (true) {
    const double left = limit_ns == 0 ? 0.0 : std::max(-seconds_since(limit_ns), 0.01);
    const int number = next_signal(left);
    if (ending_) return;
    if (limit_ns != 0 && now_ns() >= limit_ns) {
      limit_ns = 0;
      if (!is_heard_) unheard_(arrived_);
    }
    if (number < 0) continue;
    if (number == SIGINT && interrupted_ns != 0 &&
        seconds_since(interrupted_ns) >= kSecondInterruptSeconds) {
      _exit(static_cast<int>(ExitStatus::kInterruptedTwice));
    }
    if (number == SIGINT && interrupted_ns == 0) interrupted_ns = now_ns();
    int none = 0;
    if (!arrived_.compare_exchange_strong(none, number)) continue;
    const double patience = number == SIGINT ? kInterruptPatience : kPatience;
    if (unheard_) limit_ns = now_ns() + static_cast<std::int64_t>(patience * 1e9);
    tell(number);
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
