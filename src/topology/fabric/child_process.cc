#include "topology/fabric/child_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr rlim_t kMostSeconds = 10;
constexpr rlim_t kMostMemory = rlim_t{2} << 30;
constexpr std::size_t kMostText = std::size_t{64} << 20;

void limit(int resource, rlim_t value) {
  const rlimit limits{value, value};
  setrlimit(resource, &limits);
}

[[noreturn]] void be_the_child(const std::function<std::string()>& body, int out) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL}) {
    std::signal(signal, SIG_DFL);
  }
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, kMostSeconds);
#ifndef __SANITIZE_ADDRESS__  // which reserves terabytes of addresses
  limit(RLIMIT_AS, kMostMemory);
#endif
  // What a library says about a crash is of no use to anyone.
  if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
    dup2(nowhere, STDERR_FILENO);
  }
  try {
    const std::string text = body();
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t written = ::write(out, text.data() + at, text.size() - at);
      if (written < 0 && errno != EINTR) _exit(1);
      if (written > 0) at += static_cast<std::size_t>(written);
    }
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

}  // namespace

std::optional<std::string> in_child_process(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw InternalError("no pipe to a child process");
  const pid_t child = fork();
  if (child == 0) be_the_child(body, ends[1]);
  close(ends[1]);
  std::string text;
  std::array<char, 4096> piece{};
  while (child > 0 && text.size() <= kMostText) {
    const ssize_t got = ::read(ends[0], piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  if (child < 0) throw InternalError("no child process");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return text;
}

}  // namespace trireme
