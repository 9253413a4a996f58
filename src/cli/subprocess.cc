#include "cli/subprocess.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

// Uses files instead of pipes, so that nobody has to read while the program writes.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File scratch_file() {
  File file(std::tmpfile(), &std::fclose);
  if (!file) {
    throw InternalError(fmt::format("no temporary file can be made: {}", std::strerror(errno)));
  }
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
  const File in = scratch_file(), out = scratch_file(), err = scratch_file();
  const bool written = std::fwrite(input.data(), 1, input.size(), in.get()) == input.size() &&
                       std::fflush(in.get()) == 0;
  if (!written) throw InternalError("a temporary file cannot be written");
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
  if (failure != 0) return {};
  int state = 0;
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
  }
  return Finished{WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state),
                  contents(out.get()), contents(err.get())};
}

}  // namespace trireme::cli
