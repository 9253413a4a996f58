#include "trireme/io/run_folder.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/node_names.h"
#include "trireme/base/wall_clock.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/run_branch.h"
#include "trireme/io/together.h"
#include "trireme/io/whole_file.h"

#include "posix_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kHeartbeatSeconds = 15;

std::int64_t seconds_now() {
  return static_cast<std::int64_t>(unix_seconds());
}

// When this process of this host started, in the kernel's ticks since boot. 0: no such process.
std::int64_t start_of(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  // The state is field 3 and the start field 22 (proc(5)).
  for (int i = 3; i <= 22; ++i) {
    fields >> field;
    if (i == 3 && (field == "Z" || field == "X")) return 0;
  }
  return std::strtoll(field.c_str(), nullptr, 10);
}

std::string lease_path(const std::string& folder) {
  return folder + "/lease";
}

std::string to_text(const Lease& lease) {
  const Json text = Json::object({{"generation", lease.generation},
                                  {"heartbeat", lease.heartbeat},
                                  {"host", lease.host},
                                  {"job", lease.job},
                                  {"pid", lease.pid},
                                  {"process_start", lease.process_start},
                                  {"restarts", lease.restarts}});
  return text.dump(2) + "\n";
}

// Two processes that want the folder may write at the same time, so each uses a temporary file of
// its own.
void write_lease(const std::string& folder, const Lease& lease) {
  const std::string path = lease_path(folder);
  write_whole_file(path, to_text(lease), fmt::format("{}.{}.{}", path, lease.host, lease.pid));
}

Lease own_lease() {
  Lease lease;
  lease.job = environment("SLURM_JOB_ID");
  lease.restarts = std::strtoll(environment("SLURM_RESTART_COUNT").c_str(), nullptr, 10);
  lease.host = host_name();
  lease.pid = ::getpid();
  lease.process_start = start_of(lease.pid);
  lease.heartbeat = seconds_now();
  return lease;
}

bool same_process(const Lease& a, const Lease& b) {
  return a.host == b.host && a.pid == b.pid && a.process_start == b.process_start;
}

// Whether the holder of `held` may still write into the folder that `mine` wants.
bool may_still_write(const Lease& held, const Lease& mine) {
  // The scheduler never runs a job twice at a time. Within one start of the job an earlier job step
  // may still run. We can see that if the step ran on this host. If it ran on another host, we rely
  // on the job, which has started us.
  const bool same_job = !held.job.empty() && held.job == mine.job;
  if (same_job && (held.restarts < mine.restarts || held.host != mine.host)) return false;
  return may_be_alive(held);
}

[[noreturn]] void refuse_in_use(const std::string& folder, const Lease& held) {
  const std::string job = held.job.empty() ? "another run" : "job " + held.job;
  const std::string elsewhere =
      held.host == host_name()
          ? ""
          : fmt::format("; taken over once it was silent for {} s, last seen {:.0f} s ago",
                        RunFolder::kDeadAfterSeconds,
                        unix_seconds() - static_cast<double>(held.heartbeat));
  throw RunFolderError(fmt::format("{}: in use by {} on host {}, process {}{}", folder, job,
                                   held.host, held.pid, elsewhere));
}

// Refuses a folder that holds something else, so that it does not become a run by accident.
void check_is_run(const std::string& folder) {
  bool empty = true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.ini" || name.starts_with("lease") || name == "checkpoints") return;
    empty = empty && name.starts_with(".");
  }
  if (!empty) {
    throw RunFolderError(folder +
                         ": not a run folder: it holds other files; give an empty or new folder");
  }
}

// Creates a file, because permissions alone show neither read-only file systems, nor quotas, nor
// full disks.
void check_writable(const std::string& folder) {
  const std::string path = fmt::format("{}/.writable.{}.{}", folder, host_name(), ::getpid());
  const auto remove = [&] { ::unlink(path.c_str()); };
  try {
    PosixFile file(path, O_RDWR | O_CREAT | O_TRUNC);
    file.reserve(4096);
    const char page[4096] = {};
    file.write(0, page, sizeof(page));
    file.sync();
  } catch (const RunFolderError&) {
    remove();
    throw;
  }
  remove();
}

// Held while the lease is read and replaced, so that only one of two jobs that start at the same
// time gets it. On a file system without locks the generation still tells them apart.
class TakingLock {
 public:
  explicit TakingLock(const std::string& folder)
      : descriptor_(
            ::open((lease_path(folder) + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX);
  }
  ~TakingLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  TakingLock(const TakingLock&) = delete;
  TakingLock& operator=(const TakingLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace

std::optional<Lease> read_lease(const std::string& folder) {
  std::ifstream file(lease_path(folder));
  if (!file) return {};
  try {
    const Json text = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    Lease lease;
    lease.job = text.at("job").text();
    lease.restarts = text.at("restarts").integer();
    lease.host = text.at("host").text();
    lease.pid = text.at("pid").integer();
    lease.process_start = text.at("process_start").integer();
    lease.heartbeat = text.at("heartbeat").integer();
    lease.generation = text.at("generation").integer();
    return lease;
  } catch (const JsonError&) {
    throw RunFolderError(lease_path(folder) +
                         ": not a lease; remove it if no job writes into this folder");
  }
}

bool may_be_alive(const Lease& held) {
  if (held.host == host_name()) return start_of(held.pid) == held.process_start;
  return unix_seconds() - static_cast<double>(held.heartbeat) <= RunFolder::kDeadAfterSeconds;
}

class RunFolder::Holder {
 public:
  Holder(std::string folder, Lease lease) : folder_(std::move(folder)), lease_(std::move(lease)) {
    // Signals are for the main thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    heart_ = std::thread([this] { beat(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Holder() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    heart_.join();
    try {
      const TakingLock lock(folder_);
      if (is_ours()) ::unlink(lease_path(folder_).c_str());
    } catch (const Error&) {
      // The next job will judge what the lease says.
    }
  }

  void check() const {
    const std::optional<Lease> held = read_lease(folder_);
    const bool ours = held && held->generation == lease_.generation && same_process(*held, lease_);
    for (const std::string& needed : {folder_, folder_ + "/checkpoints"}) {
      const bool taken_over = held && !ours;
      if (!taken_over && !fs::is_directory(needed)) {
        throw RunFolderError(needed + ": somebody removed it while this run wrote there; ending");
      }
    }
    if (ours) return;
    if (!held) throw RunFolderError(folder_ + ": somebody removed this run's lease; ending");
    throw RunFolderError(fmt::format("{}: taken over by {} on host {}, process {}; ending", folder_,
                                     held->job.empty() ? "another run" : "job " + held->job,
                                     held->host, held->pid));
  }

 private:
  bool is_ours() const {
    const std::optional<Lease> held = read_lease(folder_);
    return held && held->generation == lease_.generation && same_process(*held, lease_);
  }

  void beat() {
    std::unique_lock lock(mutex_);
    const auto end = [this] { return ending_; };
    while (!wake_.wait_for(lock, std::chrono::seconds(kHeartbeatSeconds), end)) {
      try {
        const TakingLock taking(folder_);
        if (!is_ours()) return;  // the main thread finds out before it renames anything
        lease_.heartbeat = seconds_now();
        write_lease(folder_, lease_);
      } catch (const Error&) {
        // The file system may be unavailable for a moment. The next beat tries again.
      }
    }
  }

  std::string folder_;
  Lease lease_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread heart_;
};

namespace {

// Returns a generation greater than that of any earlier holder, even if somebody removed the
// counter. Otherwise the files of two holders could get the same number in superseded/.
std::int64_t next_generation(const std::string& folder, const std::optional<Lease>& held) {
  std::int64_t last = 0;
  std::ifstream(folder + "/lease.generation") >> last;
  if (held) last = std::max(last, held->generation);
  if (const auto branch = read_branch(folder)) {
    last = std::max(last, branch->generation);
    if (branch->unfinished) last = std::max(last, branch->unfinished->generation);
  }
  for (const SupersededBranch& branch : list_superseded(folder)) {
    last = std::max(last, branch.generation);
  }
  return last + 1;
}

// Removes files that earlier holders left behind because they were killed while writing.
void remove_leftovers(const std::string& folder, std::int64_t generation) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    // "lease.HOST.PID"
    const bool lease =
        name.starts_with("lease.") && name != "lease.generation" && name != "lease.lock";
    if (!entry.is_regular_file()) continue;
    if (lease || name.starts_with(".writable.") || name.ends_with(".partial")) {
      std::error_code ignored;  // it does no harm
      fs::remove(entry.path(), ignored);
    }
  }
  remove_unfinished_checkpoints(folder + "/checkpoints", generation);
}

Lease take_lease(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder, error)) {
    throw RunFolderError(fmt::format("{}: cannot be made: {}", folder,
                                     error ? error.message() : "there is a file of that name"));
  }
  check_is_run(folder);
  check_writable(folder);
  const TakingLock lock(folder);
  Lease mine = own_lease();
  const std::optional<Lease> held = read_lease(folder);
  if (held && !same_process(*held, mine) && may_still_write(*held, mine))
    refuse_in_use(folder, *held);
  if (held && same_process(*held, mine)) refuse_in_use(folder, *held);
  mine.generation = next_generation(folder, held);
  write_whole_file(folder + "/lease.generation", fmt::format("{}\n", mine.generation));
  write_lease(folder, mine);
  fs::create_directories(folder + "/checkpoints", error);
  remove_leftovers(folder, mine.generation);
  return mine;
}

}  // namespace

RunFolder::RunFolder(Communicator& comm, const std::string& folder) : path_(folder) {
  run_together(comm, [&] {
    if (comm.rank() != 0) return;
    try {
      const Lease lease = take_lease(folder);
      generation_ = lease.generation;
      holder_ = std::make_unique<Holder>(folder, lease);
    } catch (const fs::filesystem_error& error) {
      throw RunFolderError(fmt::format("{}: {}", folder, error.code().message()));
    }
  });
  generation_ = comm.all_reduce_host(generation_, ReduceOp::kMax);
}

RunFolder::~RunFolder() = default;

void RunFolder::check_still_ours() const {
  if (holder_) holder_->check();
}

}  // namespace trireme
