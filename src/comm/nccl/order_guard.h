// The order in which a host may enter NCCL and wait for MPI.
//
// A kernel of NCCL waits on the device for its peers; to connect and to launch it, the hosts of a
// communicator need each other too. A host that waits for MPI while such a call of its own is not
// settled holds up a peer that waits for this call before it comes to MPI: both wait for ever. So:
// 1. Each rank's host enters NCCL and waits for MPI in the same program order, from one thread.
// 2. An operation of NCCL settles (it is queued on its stream) before the host enters the next one,
//    on any communicator, and before it waits for MPI.
// 3. What MPI carries beside that (the watchdog's channel) is never waited for.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace trireme::nccl {

// Thread-safe. Guards the second rule: who breaks it gets InternalError instead of a hang.
class OrderGuard {
 public:
  // A call into NCCL, while it has not settled. `what` as "all_reduce of tensor".
  class Entry {
   public:
    // Throws where another one has not settled.
    Entry(OrderGuard& guard, std::string what);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    OrderGuard& guard_;
  };

  // The calling thread is about to wait for `what` of MPI. Throws where it has not settled what it
  // entered.
  void before_waiting(const std::string& what) const;

 private:
  struct Unsettled {
    std::string what;
    std::thread::id thread;
  };
  mutable std::mutex mutex_;
  std::optional<Unsettled> unsettled_;
};

}  // namespace trireme::nccl
