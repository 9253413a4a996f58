// The order in which a host may enter NCCL and wait for MPI.
//
// A kernel of NCCL waits on the device for its peers. To connect and to launch it, the hosts of a
// communicator need each other too. Suppose that a host waits for MPI while such a call of its own
// has not settled. Then it holds up a peer that waits for this call before it comes to MPI, and
// both wait for ever. So:
// 1. Each rank's host enters NCCL and waits for MPI in the same program order, from one thread.
// 2. An operation of NCCL settles (it is queued on its stream) before the host enters the next one,
//    on any communicator, and before it waits for MPI.
// 3. Other traffic of MPI (the watchdog's channel) is never waited for.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace trireme::nccl {

// Thread-safe. Checks the second rule: breaking it throws InternalError instead of a hang.
class OrderGuard {
 public:
  // A call into NCCL that has not settled yet. `what` is for example "all_reduce of tensor".
  class Entry {
   public:
    // Throws if another one has not settled.
    Entry(OrderGuard& guard, std::string what);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    OrderGuard& guard_;
  };

  // Call it before the calling thread waits for `what` of MPI. Throws if this thread has entered a
  // call that has not settled.
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
