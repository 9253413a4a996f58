// The run folder. It holds config.ini, metrics.jsonl, checkpoints/, report.html, and a lease that
// keeps two jobs from writing into it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

// Who writes into a run folder: the content of the file `lease`.
struct Lease {
  std::string job;            // the scheduler's job id; empty outside a job
  std::int64_t restarts = 0;  // how often the scheduler has restarted the job
  std::string host;
  std::int64_t pid = 0;
  std::int64_t process_start = 0;  // distinguishes the process from a later one of the same pid
  std::int64_t heartbeat = 0;      // seconds since 1970 when the holder was last seen alive
  std::int64_t generation = 0;     // counts the holders of the folder
};

// Returns the lease of a folder, or nothing if nobody holds one. Throws RunFolderError.
std::optional<Lease> read_lease(const std::string& folder);

// Whether the holder may still be alive, as far as this host can tell. A holder on this host is
// alive if its process exists; a holder elsewhere, if it was seen within the last
// RunFolder::kDeadAfterSeconds.
bool may_be_alive(const Lease& held);

// A run folder that this job holds. Rank 0 holds the lease; a thread there renews the heartbeat as
// long as the object exists.
class RunFolder {
 public:
  // A holder on another host counts as dead if it was not seen for this long.
  static constexpr std::int64_t kDeadAfterSeconds = 120;

  // Collective over comm. Creates the folder if there is none, checks that it is writable, and
  // takes the lease. It may take the lease if nobody holds it, if the holder was this job (an
  // earlier start of it, or a step on another host), or if the holder is dead (on this host: no
  // such process; elsewhere: not seen for kDeadAfterSeconds). Throws RunFolderError, the same on
  // all ranks, if the folder is unwritable or full, holds something that is not a run, or is in use
  // by another job; the error names that job's host and process.
  RunFolder(Communicator& comm, const std::string& folder);
  // Releases the lease.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::int64_t generation() const { return generation_; }

  // Call it on rank 0, right before each rename in the folder. If another job has taken the folder
  // over, throws a RunFolderError that names the holder; this job must then end.
  void check_still_ours() const;

 private:
  class Holder;  // rank 0's part
  std::string path_;
  std::int64_t generation_ = 0;
  std::unique_ptr<Holder> holder_;
};

}  // namespace trireme
