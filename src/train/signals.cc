#include "trireme/train/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

sigset_t stop_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = stop_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  TRIREME_CHECK(descriptor_ >= 0, "signalfd failed");
}

StopSignals::~StopSignals() {
  close(descriptor_);
}

bool StopSignals::arrived() const {
  signalfd_siginfo info;
  if (read(descriptor_, &info, sizeof info) == sizeof info) arrived_ = true;
  return arrived_;
}

}  // namespace trireme
