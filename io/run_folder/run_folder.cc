#include "trireme/io/run_folder.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/node_names.h"
#include "trireme/base/thread.h"
#include "trireme/base/wall_clock.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/run_branch.h"
#include "trireme/io/whole_file.h"

#include "io/files/posix_file.h"

namespace trireme {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::chrono::seconds kLookEvery{1};  // while it is unclear whether a holder is alive

[[noreturn]] void refuse_in_use(const std::string& folder, const Lease& held) {
  const std::string job = held.job.empty() ? "another run" : "job " + held.job;
  throw RunFolderError(
      fmt::format("{}: in use by {} on host {}, process {}", folder, job, held.host, held.pid));
}

// The names in a folder that must be there.
std::vector<std::string> names_of(const std::string& folder) {
  auto names = names_in(folder, ExitStatus::kRunFolder);
  if (!names) throw RunFolderError(folder + ": somebody removed it", Cause::kUnreadable);
  return *std::move(names);
}

// Refuses a folder that holds something else, so that it does not become a run by accident.
void check_is_run(const std::string& folder) {
  bool empty = true;
  for (const std::string& name : names_of(folder)) {
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
    PosixFile file = make_file_anew(path);
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
      : descriptor_(::open((folder + "/lease.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
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

class RunFolder::Holder {
 public:
  Holder(std::string folder, Lease lease) : folder_(std::move(folder)), lease_(std::move(lease)) {
    heart_ = start_thread("the lease of the run folder", [this] { beat(); });
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
      const std::optional<Lease> held = read_lease(folder_);
      if (held && is_ours(*held)) remove_if_there(folder_ + "/lease", ExitStatus::kRunFolder);
    } catch (const std::exception&) {
      // The next job will judge what the lease says.
    }
  }

  // A file system that blinks takes the folder away for a moment, so what is gone is looked for
  // again before the run ends.
  void check() const {
    const Stopwatch looking;
    while (true) {
      const std::string gone = what_is_gone();
      if (gone.empty()) return;
      if (looking.seconds() > Seconds(file_patience()).count()) throw RunFolderError(gone);
      std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(file_patience(), kLookEvery));
    }
  }

 private:
  // Throws if the folder was taken over.
  std::string what_is_gone() const {
    for (const std::string& needed : {folder_, folder_ + "/checkpoints"}) {
      if (look_ahead(needed, ExitStatus::kRunFolder).is_folder()) continue;
      if (needed != folder_) refuse_another(read_lease(folder_));
      return needed + ": somebody removed it while this run wrote there; ending";
    }
    const std::optional<Lease> held = read_lease(folder_);
    if (!held) return folder_ + ": somebody removed this run's lease; ending";
    refuse_another(held);
    return "";
  }

  bool is_ours(const Lease& held) const {
    return held.generation == lease_.generation && same_process(held, lease_);
  }

  void refuse_another(const std::optional<Lease>& held) const {
    if (!held || is_ours(*held)) return;
    throw RunFolderError(fmt::format("{}: taken over by {} on host {}, process {}; ending", folder_,
                                     held->job.empty() ? "another run" : "job " + held->job,
                                     held->host, held->pid));
  }

  void beat() {
    std::unique_lock lock(mutex_);
    const auto end = [this] { return ending_; };
    while (!wake_.wait_for(lock, Seconds(kHeartbeatSeconds), end)) {
      try {
        const TakingLock taking(folder_);
        const std::optional<Lease> held = read_lease(folder_);
        if (!held) continue;          // it may come back; the main thread judges that
        if (!is_ours(*held)) return;  // the main thread finds out before it renames anything
        lease_.heartbeat = static_cast<std::int64_t>(unix_seconds());
        write_lease(folder_, lease_);
      } catch (const std::exception&) {
        // The file system may be unavailable for a moment. The next beat tries again.
      }
    }
  }

  std::string folder_;
  Lease lease_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::jthread heart_;
};

namespace {

// Returns a generation greater than that of any earlier holder, even if somebody removed the
// counter. Otherwise the files of two holders could get the same number in superseded/.
std::int64_t next_generation(const std::string& folder, const std::optional<Lease>& held) {
  const auto counter = read_if_there(folder + "/lease.generation", ExitStatus::kRunFolder);
  std::int64_t last = counter ? std::strtoll(counter->c_str(), nullptr, 10) : 0;
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
  for (const std::string& name : names_of(folder)) {
    // "lease.HOST.PID"
    const bool lease =
        name.starts_with("lease.") && name != "lease.generation" && name != "lease.lock";
    if (!lease && !name.starts_with(".writable.") && !name.ends_with(".partial")) continue;
    ::unlink((folder + "/" + name).c_str());  // what stays does no harm
  }
  remove_unfinished_checkpoints(folder + "/checkpoints", generation);
}

void make_run_folder(const std::string& folder) {
  if (const FileFacts facts = look_ahead(folder, ExitStatus::kRunFolder);
      facts.is_there() && !facts.is_folder()) {
    throw RunFolderError(folder + ": cannot be made: there is a file of that name");
  }
  make_folders(folder, ExitStatus::kRunFolder);
  check_is_run(folder);
  check_writable(folder);
}

// Takes the folder on rank 0, in steps: while it is unclear whether an earlier holder is alive,
// step() returns nothing and is to be called again.
class Taking {
 public:
  explicit Taking(const std::string& folder) : folder_(folder), mine_(own_lease()) {
    make_run_folder(folder);
  }

  std::optional<Lease> step() {
    const TakingLock lock(folder_);
    const std::optional<Lease> held = read_lease(folder_);
    if (held && same_process(*held, mine_)) refuse_in_use(folder_, *held);
    if (held && !watch_) watch_.emplace(*held, mine_);
    const auto verdict = watch_ ? watch_->look(held) : LeaseWatch::Verdict::kGone;
    if (verdict == LeaseWatch::Verdict::kAlive) refuse_in_use(folder_, *held);
    if (verdict == LeaseWatch::Verdict::kUnknown) {
      if (!told_) say_waiting(*held);
      return {};
    }
    return take(held);
  }

 private:
  void say_waiting(const Lease& held) {
    told_ = true;
    print_line(fmt::format(
        "{} was held by {}process {} on host {}: waiting up to {:.0f} s for a sign of life",
        folder_, held.job.empty() ? "" : fmt::format("job {}, ", held.job), held.pid, held.host,
        lease_silence_seconds()));
  }

  Lease take(const std::optional<Lease>& held) {
    mine_.generation = next_generation(folder_, held);
    write_whole_file(folder_ + "/lease.generation", fmt::format("{}\n", mine_.generation));
    write_lease(folder_, mine_);
    make_folders(folder_ + "/checkpoints", ExitStatus::kRunFolder);
    remove_leftovers(folder_, mine_.generation);
    return mine_;
  }

  const std::string& folder_;
  Lease mine_;
  std::optional<LeaseWatch> watch_;
  bool told_ = false;
};

}  // namespace

// The other ranks hear from rank 0 each time it has looked, so that none waits longer for a message
// than a watchdog allows.
RunFolder::RunFolder(Communicator& comm, const std::string& folder) : path_(folder) {
  std::optional<Taking> taking;
  while (true) {
    const std::string generation = comm.read_once([&]() -> std::string {
      if (!taking) {
        taking.emplace(folder);
      } else {
        std::this_thread::sleep_for(kLookEvery);
      }
      const std::optional<Lease> lease = taking->step();
      if (!lease) return "";
      holder_ = std::make_unique<Holder>(folder, *lease);
      return std::to_string(lease->generation);
    });
    if (generation.empty()) continue;
    generation_ = std::strtoll(generation.c_str(), nullptr, 10);
    return;
  }
}

RunFolder::~RunFolder() = default;

void RunFolder::check_still_ours() const {
  if (holder_) holder_->check();
}

}  // namespace trireme
