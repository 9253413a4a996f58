#include "cli/scale_launch.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/train/signals.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

sigset_t awaited() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : stop_signals()) sigaddset(&set, number);
  sigaddset(&set, SIGCHLD);
  return set;
}

// What cannot be seen is no program to start.
bool can_be_started(const std::string& path) {
  struct stat facts {};
  return ::access(path.c_str(), X_OK) == 0 && ::stat(path.c_str(), &facts) == 0 &&
         S_ISREG(facts.st_mode);
}

// Returns the first of the names that is a program in the PATH.
std::optional<std::string> find_program(const std::vector<std::string>& names) {
  const char* path = std::getenv("PATH");
  for (const std::string& name : names) {
    for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
      const std::size_t end = std::min(rest.find(':'), rest.size());
      const std::string candidate = fmt::format("{}/{}", rest.substr(0, end), name);
      if (can_be_started(candidate)) {
        return candidate;
      }
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return {};
}

// Prefers MPICH's mpiexec, even if the plain name belongs to another MPI.
std::optional<std::string> find_mpiexec() {
  return find_program({"mpiexec.mpich", "mpiexec.hydra", "mpiexec"});
}

// Starts a command in a process group of its own, so that a signal from the terminal reaches it
// only through us.
pid_t start(const std::vector<std::string>& command, const std::string& log) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, words[0], &files, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw ConfigError(fmt::format("cannot start {}: {}", command[0], std::strerror(error)));
  }
  return child;
}

// Waits for the child and returns its status, counted as a shell does. Passes a signal on to the
// child; a second signal ends the child at once.
int finish(pid_t child, StudySignals& signals) {
  bool told = false;
  for (int status = 0;;) {
    if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    signals.wait(1.0);
    if (signals.arrived() && !told) ::kill(-child, SIGTERM);
    told = told || signals.arrived();
  }
}

}  // namespace

StudySignals::StudySignals() {
  const sigset_t set = awaited();
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

void StudySignals::wait(double seconds) {
  const sigset_t set = awaited();
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
  const int number = ::sigtimedwait(&set, nullptr, &time);
  if (number > 0 && number != SIGCHLD) arrived_ = true;
}

std::string default_launcher() {
  if (std::getenv("SLURM_JOB_ID") != nullptr) return "srun";
  return find_program({"sbatch"}) ? "" : "mpiexec";
}

void check_launcher(const ScaleLaunch& launch, int most_nodes) {
  if (launch.launcher.empty()) {
    throw ConfigError(
        "this host has sbatch but is in no allocation: choose with --launcher sbatch (a job for "
        "each run), --launcher srun (inside salloc or a job) or --launcher mpiexec (all processes "
        "on this host)");
  }
  if (launch.launcher == "mpiexec" && !find_mpiexec()) {
    throw ConfigError("--launcher mpiexec: there is no mpiexec in the PATH");
  }
  if (launch.launcher == "sbatch" && !find_program({"sbatch"})) {
    throw ConfigError("--launcher sbatch: there is no sbatch in the PATH");
  }
  if (launch.launcher != "srun") return;
  const char* nodes = std::getenv("SLURM_JOB_NUM_NODES");
  if (nodes == nullptr) {
    throw ConfigError(
        "--launcher srun needs an allocation: start it from salloc or sbatch, or take --launcher "
        "sbatch");
  }
  if (std::atoi(nodes) < most_nodes) {
    throw ConfigError(
        fmt::format("--nodes asks for {} nodes, but the allocation has {}", most_nodes, nodes));
  }
}

std::vector<std::string> launch_command(const ScaleLaunch& launch, const scaling::Point& point,
                                        int ranks_per_node, const std::string& folder) {
  std::vector<std::string> command;
  if (launch.launcher == "mpiexec") {
    command = {find_mpiexec().value_or("mpiexec"), "-n", std::to_string(point.ranks)};
  } else {
    command = {"srun",
               "-K1",
               "--export=ALL",
               "--mpi=" + launch.site.mpi,
               fmt::format("--nodes={}", point.nodes),
               fmt::format("--ntasks={}", point.ranks),
               fmt::format("--ntasks-per-node={}", ranks_per_node)};
    if (launch.cpus_given)
      command.push_back(fmt::format("--cpus-per-task={}", launch.cpus_per_rank));
    std::istringstream options(launch.site.srun);
    for (std::string option; options >> option;) command.push_back(option);
  }
  command.insert(command.end(), {launch.program, "scale", "--point", folder});
  return command;
}

void throw_failed(const scaling::StudyFolder& study, const scaling::Point& point, int status) {
  const std::string log = study.folder_of(point) + "/log";
  std::string last, fault;
  try {
    auto file = FileReader::open_if_there(log, ExitStatus::kRunFolder);
    for (std::string line; file && file->line(line);) {
      if (!line.empty()) last = line;
      if (fault.empty() && line.starts_with("trireme: ")) fault = line.substr(9);
    }
  } catch (const RunFolderError& error) {
    last = error.what();
  }
  constexpr int kKnown[] = {2, 3, 4, 5, 6, 70, 71, 75, 76};
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), status) != std::end(kKnown);
  throw Error(known ? static_cast<ExitStatus>(status) : ExitStatus::kInternal,
              fmt::format("point {} ended with status {}: {} ({}); the same command goes on there",
                          point.name(), status, fault.empty() ? last : fault, log));
}

std::string progress_line(std::size_t number, std::size_t count,
                          const scaling::PointResult& result) {
  return fmt::format("{}/{} {}: {:.0f} {}, {} a step", number, count, result.point.name(),
                     result.measured.units_per_second, result.measured.unit.rate(),
                     time_text(result.measured.step_seconds));
}

bool run_here(const ScaleLaunch& launch, const scaling::StudyFolder& study,
              const scaling::StudyPlan& plan, const std::vector<scaling::Point>& points) {
  StudySignals signals;
  std::size_t number = 0;
  for (const scaling::Point& point : points) {
    ++number;
    if (!study.results_of(point).empty()) continue;
    study.begin(point);
    const std::string folder = study.folder_of(point);
    const int status =
        finish(start(launch_command(launch, point, plan.ranks_per_node, folder), folder + "/log"),
               signals);
    const std::vector<scaling::PointResult> results = study.results_of(point);
    if (results.empty()) {
      if (signals.arrived()) return false;
      study.report(points);
      throw_failed(study, point, status);
    }
    study.report(points);
    print_line(progress_line(number, points.size(), results.front()));
    if (signals.arrived()) return false;
  }
  return true;
}

}  // namespace trireme::cli
