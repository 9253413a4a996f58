#include "trireme/base/thread.h"

#include <csignal>
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include "trireme/base/caught.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"

#include "process_limits.h"

namespace trireme {
namespace {

// A thread inherits its creator's mask.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

[[noreturn]] void end_by_line(const std::exception_ptr& exception) {
  const Error error = caught(exception);
  report_line(error.what());
  _exit(static_cast<int>(error.status()));
}

}  // namespace

std::jthread start_thread(std::string_view purpose, std::function<void()> body) {
  const AllSignalsBlocked blocked;
  try {
    return std::jthread([body = std::move(body)] {
      try {
        body();
      } catch (const std::exception&) {
        end_by_line(std::current_exception());
      }
    });
  } catch (const std::system_error& error) {
    throw Error(ExitStatus::kDevice, fmt::format("no thread for {}: {}; {}", purpose,
                                                 error.code().message(), words_on_thread_limits()));
  }
}

void end_by_line_on_terminate() {
  std::set_terminate([] {
    if (const std::exception_ptr exception = std::current_exception()) end_by_line(exception);
    report_line("std::terminate was called without an exception");
    _exit(static_cast<int>(ExitStatus::kInternal));
  });
}

}  // namespace trireme
