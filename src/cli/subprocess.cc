#include "cli/subprocess.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace

std::optional<Finished> run_program(const std::vector<std::string>& command,
                                    const std::string& input) {
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
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  pid_t pid = 0;
  const int failure =
      posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failure == ENOENT) return {};
  if (failure != 0) throw_unstarted(program, failure);
  int state = 0;
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
  }
  return Finished{WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state),
                  contents(out.get()), contents(err.get())};
}

}  // namespace trireme::cli
