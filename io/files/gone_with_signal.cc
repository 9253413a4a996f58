#include "io/files/gone_with_signal.h"

#include <array>
#include <atomic>
#include <csignal>
#include <mutex>

#include <unistd.h>

namespace trireme {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Names of files; null: free. Only what the standard allows in a handler touches these.
std::array<std::atomic<const char*>, GoneWithSignal::kMost> slots;
std::atomic<int> waits = 0;
std::atomic<int> came = 0;  // the signal that waits, or 0
static_assert(std::atomic<const char*>::is_always_lock_free);
static_assert(std::atomic<int>::is_always_lock_free);

void remove_and_end(int number) {
  if (waits.load() > 0) {
    came.store(number);
    return;
  }
  for (std::atomic<const char*>& slot : slots) {
    const char* const path = slot.load();
    if (path != nullptr) ::unlink(path);
  }
  std::signal(number, SIG_DFL);
  std::raise(number);
}

// What is ignored (nohup) stays so. UCX takes SIGHUP for its debugger, from us too.
void install_handlers() {
  for (const int number : kSignals) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    struct sigaction wanted {};
    wanted.sa_handler = remove_and_end;
    wanted.sa_flags = SA_RESTART;  // one that waits interrupts nothing
    ::sigaction(number, &wanted, nullptr);
  }
}

}  // namespace

GoneWithSignal::Wait::Wait() {
  static std::once_flag installed;
  std::call_once(installed, install_handlers);
  ++waits;
}

GoneWithSignal::Wait::~Wait() {
  if (--waits > 0) return;
  const int number = came.exchange(0);
  if (number != 0) remove_and_end(number);
}

GoneWithSignal::GoneWithSignal(const std::string& path) : path_(path) {
  const Wait wait;
  for (int i = 0; i < kMost; ++i) {
    const char* none = nullptr;
    if (!slots[static_cast<std::size_t>(i)].compare_exchange_strong(none, path_.c_str())) continue;
    slot_ = i;
    return;
  }
}

GoneWithSignal::~GoneWithSignal() {
  if (slot_ >= 0) slots[static_cast<std::size_t>(slot_)].store(nullptr);
}

}  // namespace trireme
