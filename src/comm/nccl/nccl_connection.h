// One communicator of NCCL, and what all communicators of a process share.
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

#include "comm/device/device_carrier.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/order_guard.h"
#include "comm/nccl/tuner_table.h"

namespace trireme::nccl {

class Connection;
class CapturedOperations;

// What the communicators of a process share. The first fault in any of them aborts all of them.
// Otherwise a kernel that waits for a peer would never end, and neither would a host that waits for
// the kernel.
class Session {
 public:
  Session(std::shared_ptr<Library> library, const DeviceCarrierParts& parts)
      : library_(std::move(library)), parts_(parts), timeout_s_(parts.timeout_s) {}
  ~Session();  // all communicators have ended before
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Library& library() const { return *library_; }
  const DeviceCarrierParts& parts() const { return parts_; }
  OrderGuard& guard() { return guard_; }
  double timeout_s() const { return timeout_s_; }
  void set_timeout(double seconds) { timeout_s_ = seconds; }
  // The table of our tuner; nullptr: NCCL has no tuner of ours.
  TunerTable* tuner() const { return tuner_.get(); }
  void use_tuner(std::unique_ptr<TunerTable> tuner) { tuner_ = std::move(tuner); }

  void add(const std::shared_ptr<Connection>& connection);
  // Throws the first fault, if there was one.
  void check() const;
  // Keeps `fault` if it is the first, reports it (on_fault), and aborts every communicator.
  void fail(std::exception_ptr fault) noexcept;
  void abort() noexcept;
  // Aborts one communicator, or all of them if graphs may hold it.
  void abort(Connection& connection) noexcept;
  void close() noexcept;

  // The capture that takes the operations entered now, by the thread that enters them; nullptr:
  // nothing is captured.
  CapturedOperations* capture() const { return capture_; }
  void set_capture(CapturedOperations* capture) { capture_ = capture; }
  // Registers a graph that holds operations, and removes it. An abort waits until no graph holds
  // any, so it ends the graphs first.
  void add_graph(const void* owner, std::function<void()> give_up);
  void remove_graph(const void* owner);

  // Lends a stream to a communicator. Tensors that were used on it may outlive the communicator,
  // and their memory refers to the stream until it is released. So the stream returns to the
  // session, which destroys it.
  using LentStream = std::unique_ptr<cuda::OwnedStream, std::function<void(cuda::OwnedStream*)>>;
  LentStream lend_stream();

  // Allocates NCCL's own memory; nullptr if there is not enough. It is freed when the device is
  // done with it. With an exception in flight it is freed when the session ends, because kernels
  // may wait for a peer.
  Buffer allocate(std::size_t bytes);
  // How memory may be registered next. Memory of the session's own: as a window, once, if this
  // version has windows; otherwise as a buffer. Other memory: not at all.
  std::optional<Library::Registration> kind_of(const Buffer& memory) const;
  void set_in_window(const Buffer& memory, bool in_window);
  void wait_for_device() const { parts_.cuda->release_freed(parts_.device); }
  // Returns true the first time.
  bool first_refusal() { return !refused_.exchange(true); }

 private:
  std::vector<std::shared_ptr<Connection>> open_connections() const;
  void give_back(std::byte* memory) noexcept;

  const std::shared_ptr<Library> library_;
  const DeviceCarrierParts parts_;
  std::unique_ptr<TunerTable> tuner_;
  std::atomic<double> timeout_s_;
  OrderGuard guard_;
  std::atomic<CapturedOperations*> capture_ = nullptr;
  std::atomic<bool> held_by_graphs_ = false;  // true once a graph has held an operation
  mutable std::mutex mutex_;                  // guards the rest
  std::exception_ptr fault_;
  std::map<const void*, std::function<void()>> graphs_;  // by owner: what ends it
  std::vector<std::weak_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<cuda::OwnedStream>> idle_streams_;
  std::map<const std::byte*, bool> memory_;  // NCCL's own memory, and whether a window holds it
  std::vector<std::byte*> left_memory_;      // freed at the end
  std::atomic<bool> refused_ = false;
};

// Thread-safe, because another thread may find a fault and abort everything.
class Connection {
 public:
  // `name` is the communicator's name, for messages. The connection is not open yet.
  Connection(Session& session, std::string name) : session_(session), name_(std::move(name)) {}
  ~Connection() { abort(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Collective over the ranks. Throws NcclError; then the session has failed.
  void open(int ranks, const UniqueId& id, int rank);
  // Makes a call and waits, testing and yielding, until the call has settled; then what it queues
  // is on its stream. `what` is for example "all_reduce". Throws as open does.
  void call(const char* what, const std::function<Result(Library&, CommHandle)>& function);
  // Throws an error that has come since; the session has failed then. Does nothing once closed.
  void check();
  // Collective. Closes it in good order; queued work still runs. If closing fails, aborts.
  void close() noexcept;
  // Registers memory, as call() makes a call. But if NCCL refuses it at once, and nothing else is
  // wrong, `refusal` gets the reason. Returns nullptr if NCCL has no use for it.
  struct Registration {
    Library::Registration kind;
    void* handle = nullptr;
  };
  Registration* register_memory(Library::Registration kind, std::byte* memory, std::size_t bytes,
                                std::string& refusal);
  // The memory must not be in use. Does nothing once the communicator has ended.
  void deregister(Registration& registration) noexcept;
  // May be called from any thread, without any other rank. Kernels end. Later calls do nothing.
  void abort() noexcept;

 private:
  Result make(const std::function<Result(Library&, CommHandle)>& function);
  Result state();
  void settle(const char* what, Result result);
  [[noreturn]] void fail(const char* what, Result result);

  Session& session_;
  const std::string name_;
  std::mutex mutex_;  // guards handle_, and keeps it valid during calls to NCCL
  CommHandle handle_ = nullptr;
  bool gone_ = false;  // closed or aborted
  // Elements do not move, because NCCL may write a handle from a thread of its own until a call has
  // settled.
  std::deque<Registration> registrations_;
};

// Throws the error of a call that returned `result`, which is not a success.
[[noreturn]] void throw_fault(Library& library, CommHandle comm, const std::string& what,
                              Result result);

}  // namespace trireme::nccl
