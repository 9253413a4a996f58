// The run folder: config.ini, metrics.jsonl, checkpoints/, report.html, and a lease that keeps two
// jobs from writing into it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

// Who writes into a run folder; the text of the file `lease`.
struct Lease {
  std::string job;            // the scheduler's job id; empty outside of a job
  std::int64_t restarts = 0;  // how often the scheduler has started the job anew
  std::string host;
  std::int64_t pid = 0;
  std::int64_t process_start = 0;  // tells the process from a later one of the same pid
  std::int64_t heartbeat = 0;      // seconds since 1970 when the holder was last seen alive
  std::int64_t generation = 0;     // counts the holders of the folder
};

// The lease of a folder; nothing where none is held. Throws RunFolderError.
std::optional<Lease> read_lease(const std::string& folder);

// Whether the holder may still be alive, as far as this host can tell: where it is on this host its
// process is there, elsewhere it was seen in the last RunFolder::kDeadAfterSeconds.
bool may_be_alive(const Lease& held);

// A run folder that this job holds. It is held by rank 0; while the object lives a thread there
// renews the heartbeat.
class RunFolder {
 public:
  // A holder on another host that was not seen for so long is taken for dead.
  static constexpr std::int64_t kDeadAfterSeconds = 120;

  // Collective over comm. Makes the folder where there is none, checks that it can be written to,
  // and takes the lease: nobody holds it, the holder was this job (an earlier start of it, or a
  // step on another host), or the holder is dead (on this host: no such process; elsewhere: not
  // seen for kDeadAfterSeconds). The same on all ranks: RunFolderError where the folder is
  // unwritable, full, holds something that is not a run, or is in use by another job, whose host
  // and process it names.
  RunFolder(Communicator& comm, const std::string& folder);
  // Gives the lease back.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::int64_t generation() const { return generation_; }

  // On rank 0, right before a rename in the folder. Throws RunFolderError that names the holder
  // where another job has taken the folder over: this one must end.
  void check_still_ours() const;

 private:
  class Holder;  // rank 0's part
  std::string path_;
  std::int64_t generation_ = 0;
  std::unique_ptr<Holder> holder_;
};

}  // namespace trireme
