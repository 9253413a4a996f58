// One communicator of NCCL, and what all of a process share.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../device_carrier.h"
#include "nccl_library.h"
#include "order_guard.h"

namespace trireme::nccl {

class Connection;
class CapturedOperations;

// What the communicators of a process share. The first fault in any of them ends them all: a kernel
// that waits for a peer would never end otherwise, nor would a host that waits for the kernel.
class Session {
 public:
  Session(std::shared_ptr<Library> library, const DeviceCarrierParts& parts)
      : library_(std::move(library)), parts_(parts), timeout_s_(parts.timeout_s) {}
  ~Session();  // all communicators have ended
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Library& library() const { return *library_; }
  const DeviceCarrierParts& parts() const { return parts_; }
  OrderGuard& guard() { return guard_; }
  double timeout_s() const { return timeout_s_; }
  void set_timeout(double seconds) { timeout_s_ = seconds; }

  void add(const std::shared_ptr<Connection>& connection);
  // Throws the first fault, if there was one.
  void check() const;
  // Keeps `fault` if it is the first, tells of it (on_fault), and aborts every communicator.
  void fail(std::exception_ptr fault) noexcept;
  void abort() noexcept;
  // Of one communicator, and of all where graphs may hold it.
  void abort(Connection& connection) noexcept;
  void close() noexcept;

  // What takes the operations that are entered now, from the thread that enters them; nullptr:
  // nothing is captured.
  CapturedOperations* capture() const { return capture_; }
  void set_capture(CapturedOperations* capture) { capture_ = capture; }
  // Graphs that hold operations. An abort waits until none does, so it ends them first.
  void add_graph(const void* owner, std::function<void()> give_up);
  void remove_graph(const void* owner);

  // A stream for a communicator. Tensors that were used on it may outlive the communicator, and
  // their memory refers to the stream until it is let go of: so it goes back to the session, which
  // ends it.
  using LentStream = std::unique_ptr<cuda::OwnedStream, std::function<void(cuda::OwnedStream*)>>;
  LentStream lend_stream();

  // Memory of NCCL's own, which goes back when the device is done with it; with an exception in
  // flight, when the session ends, since kernels may wait for a peer. nullptr where there is not
  // enough.
  Buffer allocate(std::size_t bytes);
  // How memory may be registered next: as a window, once, where it is of the session's own and this
  // version has windows; as a buffer; or not at all, where it is not its own.
  std::optional<Library::Registration> kind_of(const Buffer& memory) const;
  void set_in_window(const Buffer& memory, bool in_window);
  void wait_for_device() const { parts_.cuda->release_freed(parts_.device); }
  // True the first time.
  bool first_refusal() { return !refused_.exchange(true); }

 private:
  std::vector<std::shared_ptr<Connection>> open_connections() const;
  void give_back(std::byte* memory) noexcept;

  const std::shared_ptr<Library> library_;
  const DeviceCarrierParts parts_;
  std::atomic<double> timeout_s_;
  OrderGuard guard_;
  std::atomic<CapturedOperations*> capture_ = nullptr;
  std::atomic<bool> held_by_graphs_ = false;  // since some graph held an operation
  mutable std::mutex mutex_;                  // guards the rest
  std::exception_ptr fault_;
  std::map<const void*, std::function<void()>> graphs_;  // by owner: what ends it
  std::vector<std::weak_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<cuda::OwnedStream>> idle_streams_;
  std::map<const std::byte*, bool> memory_;  // of NCCL's own, and whether a window holds it
  std::vector<std::byte*> left_memory_;      // for the end
  std::atomic<bool> refused_ = false;
};

// Thread-safe: a fault may be found, and everything aborted, by another thread.
class Connection {
 public:
  // `name` of the communicator, for messages. Not open yet.
  Connection(Session& session, std::string name) : session_(session), name_(std::move(name)) {}
  ~Connection() { abort(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Collective over the ranks. Throws NcclError; then the session has failed.
  void open(int ranks, const UniqueId& id, int rank);
  // Makes a call and waits, testing and yielding, until it has settled: what it queues is on its
  // stream then. `what` as "all_reduce". Throws as open does.
  void call(const char* what, const std::function<Result(Library&, CommHandle)>& function);
  // Throws what went wrong since; the session has failed then. Nothing once it is closed.
  void check();
  // Collective. Ends it in good order; what is queued is still done. Where that fails, aborts.
  void close() noexcept;
  // Registers memory, as call() makes a call; but where NCCL refuses it at once, and nothing else
  // is wrong, `refusal` says why. None where NCCL has no use for it.
  struct Registration {
    Library::Registration kind;
    void* handle = nullptr;
  };
  Registration* register_memory(Library::Registration kind, std::byte* memory, std::size_t bytes,
                                std::string& refusal);
  // Nothing of it is in use. Does nothing once the communicator has ended.
  void deregister(Registration& registration) noexcept;
  // From any thread, with no other rank; kernels end. Once: later calls do nothing.
  void abort() noexcept;

 private:
  Result make(const std::function<Result(Library&, CommHandle)>& function);
  Result state();
  void settle(const char* what, Result result);
  [[noreturn]] void fail(const char* what, Result result);

  Session& session_;
  const std::string name_;
  std::mutex mutex_;  // guards handle_, and that nobody calls NCCL with one that is gone
  CommHandle handle_ = nullptr;
  bool gone_ = false;  // closed or aborted
  // Stay where they are: NCCL may write a handle from a thread of its own until a call has settled.
  std::deque<Registration> registrations_;
};

// Throws as the fault of a call that answered `result`, which is an error.
[[noreturn]] void throw_fault(Library& library, CommHandle comm, const std::string& what,
                              Result result);

}  // namespace trireme::nccl
