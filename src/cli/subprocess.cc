#include "cli/subprocess.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

// Files instead of pipes, so that nobody has to read while the program writes; in memory, so that
// no disk can be full.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void throw_unstarted(const std::string& program, int reason) {
  throw Error(ExitStatus::kDevice,
              fmt::format("{} cannot be started: {}", program, std::strerror(reason)));
}

File scratch_file(const std::string& program) {
  const int descriptor = ::memfd_create("output", MFD_CLOEXEC);
  File file(descriptor < 0 ? nullptr : ::fdopen(descriptor, "w+"), &std::fclose);
  if (!file) throw_unstarted(program, errno);
  return file;
}

std::string contents(std::FILE* file) {
  std::rewind(file);
  std::string text;
  char part[4096];
  for (std::size_t n; (n = std::fread(part, 1, sizeof part, file)) > 0;) text.append(part, n);
  return text;
}

std::vector<char*> environment_of(const ProgramTerms& terms) {
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!terms.passes_on || terms.passes_on(*variable)) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  return variables;
}

// Waits for a process, which leads a group of its own if its time is limited. Returns whether it
// had to be killed.
bool wait_for(pid_t pid, const std::optional<double>& seconds, int& state) {
  const Stopwatch watch;
  bool late = false;
  while (true) {
    const pid_t ended = waitpid(pid, &state, seconds && !late ? WNOHANG : 0);
    if (ended == pid || (ended < 0 && errno != EINTR)) return late;
    if (ended < 0 || !seconds || late) continue;
    late = watch.seconds() > *seconds;
    if (late) {
      ::kill(-pid, SIGKILL);
    } else {
      ::usleep(5000);
    }
  }
}

}  // namespace

std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

std::optional<Finished> run_program(const std::vector<std::string>& command,
                                    const std::string& input, const ProgramTerms& terms) {
  const std::string& program = command.front();
  const File in = scratch_file(program), out = scratch_file(program), err = scratch_file(program);
  const bool written = std::fwrite(input.data(), 1, input.size(), in.get()) == input.size() &&
                       std::fflush(in.get()) == 0;
  if (!written) throw_unstarted(program, errno);
  std::rewind(in.get());

  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err.get()), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const int group = terms.seconds ? POSIX_SPAWN_SETPGROUP : 0;
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGDEF | group));
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  pid_t pid = 0;
  const std::vector<char*> variables = environment_of(terms);
  const int failure =
      posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failure == ENOENT) return {};
  if (failure != 0) throw_unstarted(program, failure);
  int state = 0;
  const bool late = wait_for(pid, terms.seconds, state);
  return Finished{WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state),
                  contents(out.get()), contents(err.get()), late};
}

}  // namespace trireme::cli
