// An operation of NCCL on the device, with its beginning and end in its stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/mpi/progress_engine.h"
#include "comm/nccl/nccl_connection.h"

namespace trireme::nccl {

// An operation, or one message of an exchange, as the recorder sees it.
struct OperationPart {
  LaneKey key;
  std::string_view name;  // a string literal
  std::size_t bytes;
};

// Shared by the host that enters it, the Work, and the engine's thread, which sees it begin and end
// and tells the flight recorder. The order of streams (record_use) protects the memory that it
// uses.
class DeviceOperation {
 public:
  DeviceOperation(Session& session, std::shared_ptr<Connection> connection);

  // Queues what comes before the operation: the wait for `ready`, and the event of its beginning.
  void prepare(const Stream& ready, const Stream& stream);
  // Called when the operation has settled: records the event of its end.
  void entered(const Stream& stream);
  void failed(std::exception_ptr fault);

  // The engine's thread calls these. An operation that is still being entered counts as begun after
  // a while, because peers are missing then. They throw the session's fault.
  bool begun();
  bool ended();

  // Later work of `stream` waits for the end.
  void make_wait(const Stream& stream) const;

 private:
  enum class Stage { kEntering, kEntered, kFailed };
  template <class Function>
  bool guarded(Function&& ask);

  Session& session_;
  const std::shared_ptr<Connection> connection_;
  cuda::Event ready_, begin_, end_;
  const std::int64_t made_ns_;
  std::atomic<Stage> stage_ = Stage::kEntering;
  std::exception_ptr fault_;  // set if it failed
};

// Makes a Work that is done when `polled` (the engine's Work) is; streams need not wait for that.
Work make_device_work(Session& session, std::shared_ptr<DeviceOperation> operation, Work polled);
// Makes the task for the engine.
std::unique_ptr<Task> make_device_task(std::shared_ptr<DeviceOperation> operation);
// Wraps Work of MPI for which a host with NCCL waits. `what` is for example "all_reduce of tensor".
Work make_host_work(Session& session, std::string what, Work work);

}  // namespace trireme::nccl
