// The run folder. It holds config.ini, metrics.jsonl, checkpoints/, report.html, and a lease that
// keeps two jobs from writing into it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/io/lease.h"

namespace trireme {

// A run folder that this job holds. Rank 0 holds the lease; a thread there renews the heartbeat as
// long as the object exists.
class RunFolder {
 public:
  // Collective over comm. Creates the folder if there is none, checks that it is writable, and
  // takes the lease. It may take the lease if nobody holds it, if the holder was this job (an
  // earlier start of it, or a step on another host), or if the holder is dead (LeaseWatch: that may
  // take minutes to find out, and a line says so). Throws RunFolderError, the same on all ranks, if
  // the folder is unwritable or full, holds something that is not a run, or is in use by another
  // job; the error names that job's host and process.
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
  // over, throws a RunFolderError that names the holder; this job must then end. A folder or a
  // lease that is gone is looked for again for file_patience().
  void check_still_ours() const;

 private:
  class Holder;  // rank 0's part
  std::string path_;
  std::int64_t generation_ = 0;
  std::unique_ptr<Holder> holder_;
};

}  // namespace trireme
