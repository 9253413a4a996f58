// Leases: who writes into a folder, and whether that process may still be alive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/clock.h"

namespace trireme {

// Who writes into a run folder: the content of the file `lease`.
struct Lease {
  std::string job;            // the scheduler's job id; empty outside a job
  std::int64_t restarts = 0;  // how often the scheduler has restarted the job
  std::string host;
  std::string boot;                // the boot of that host, as its kernel names it
  std::int64_t pid_namespace = 0;  // in which `pid` counts
  std::int64_t pid = 0;
  std::int64_t process_start = 0;  // distinguishes the process from a later one of the same pid
  std::int64_t heartbeat = 0;      // seconds since 1970 when the holder was last seen alive
  std::int64_t generation = 0;     // counts the holders of the folder

  bool operator==(const Lease&) const = default;
};

// Returns the lease of a folder, or nothing if nobody holds one. Throws RunFolderError, of
// Cause::kUnreadable where the file cannot be read.
std::optional<Lease> read_lease(const std::string& folder);
void write_lease(const std::string& folder, const Lease& lease);

// The lease of this process, without a generation.
Lease own_lease();
bool same_process(const Lease& a, const Lease& b);

// How often a holder renews its lease, and after which silence it counts as dead: 120 s, or
// TRIREME_LEASE_SILENCE in the environment, in seconds.
constexpr double kHeartbeatSeconds = 10.0;
double lease_silence_seconds();

// Whether a lease that was just seen to be old may be of a living process, as far as the clocks
// tell. For those who only look (`trireme top`): clocks of two hosts may differ by any time.
bool seems_alive(const Lease& held);

// Finds out whether the holder of a lease is gone, by looking again and again. No clocks of two
// hosts are compared: a holder elsewhere is dead when its lease has not changed for
// lease_silence_seconds() of this process's own time.
class LeaseWatch {
 public:
  // `mine` wants the folder that `held` holds.
  LeaseWatch(const Lease& held, const Lease& mine);

  enum class Verdict {
    kGone,     // the holder released it, was an earlier start of this job, or is dead
    kAlive,    // a process of this host that lives, or a lease that was renewed
    kUnknown,  // look again
  };
  // `now`: the folder's lease as it is now; nothing if it was released.
  Verdict look(const std::optional<Lease>& now) const;

  // How long the holder has been silent, in seconds.
  double silence() const { return watched_.seconds(); }

 private:
  Lease held_, mine_;
  Stopwatch watched_;
};

}  // namespace trireme
