#include "support/sandbox.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <stdexcept>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme::testing {
namespace {

constexpr rlim_t kMostFileBytes = rlim_t{256} << 20;

// Collects what a process writes, in memory, until it is read.
class Capture {
 public:
  Capture() : descriptor_(::memfd_create("output", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create fails");
  }
  ~Capture() { ::close(descriptor_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  int descriptor() const { return descriptor_; }
  std::string text() const {
    std::string text(static_cast<std::size_t>(::lseek(descriptor_, 0, SEEK_END)), '\0');
    const ssize_t got = ::pread(descriptor_, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(got < 0 ? 0 : got));
    return text;
  }

 private:
  int descriptor_;
};

void limit(__rlimit_resource resource, rlim_t value) {
  const rlimit both{value, value};
  ::setrlimit(resource, &both);
}

[[noreturn]] void run_child(const std::function<int()>& body, int seconds, const Capture& out,
                            const Capture& err) {
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(out.descriptor(), STDOUT_FILENO);
  ::dup2(err.descriptor(), STDERR_FILENO);
  const rlimit time{static_cast<rlim_t>(seconds), static_cast<rlim_t>(seconds) + 5};
  ::setrlimit(RLIMIT_CPU, &time);
  limit(RLIMIT_FSIZE, kMostFileBytes);
  limit(RLIMIT_CORE, 0);
  std::signal(SIGXFSZ, SIG_IGN);
  int status = 125;
  try {
    status = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "an exception left the body: %s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

SandboxResult run_in_sandbox(const std::function<int()>& body, int seconds) {
  const Capture out, err;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork fails");
  if (child == 0) run_child(body, seconds, out, err);
  SandboxResult result;
  timespec pause{0, 200'000};
  const std::time_t end = std::time(nullptr) + 10 * seconds;
  int state = 0;
  while (::waitpid(child, &state, WNOHANG) == 0) {
    if (std::time(nullptr) > end) {
      result.timed_out = true;
      ::kill(-child, SIGKILL);
      ::kill(child, SIGKILL);
    }
    ::nanosleep(&pause, nullptr);
    if (pause.tv_nsec < 5'000'000) pause.tv_nsec *= 2;
  }
  ::kill(-child, SIGKILL);  // ends processes that it may have left
  result.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  result.timed_out = result.timed_out || (WIFSIGNALED(state) && WTERMSIG(state) == SIGXCPU);
  result.out = out.text();
  result.err = err.text();
  return result;
}

}  // namespace trireme::testing
