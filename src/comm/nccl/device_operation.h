// An operation of NCCL on the device: where it begins and ends in its stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include "../progress_engine.h"
#include "nccl_connection.h"

namespace trireme::nccl {

// An operation, or a message of an exchange, as the recorder sees it.
struct OperationPart {
  LaneKey key;
  std::string_view name;  // a string literal
  std::size_t bytes;
};

// Shared by the host that enters it, the Work, and the engine's thread, which sees it begin and end
// and so feeds the flight recorder. Memory that it uses is the stream's business (record_use).
class DeviceOperation {
 public:
  DeviceOperation(Session& session, std::shared_ptr<Connection> connection);

  // Queues what comes before it: the wait for `ready`, and the mark of its begin.
  void prepare(const Stream& ready, const Stream& stream);
  // It has settled: marks its end.
  void entered(const Stream& stream);
  void failed(std::exception_ptr fault);

  // For the engine's thread. An operation that is still being entered has begun after a while:
  // peers are missing. These throw the session's fault.
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
  std::exception_ptr fault_;  // where it failed
};

// Work on the device is done when `polled` (the engine's) is; streams need not wait for that.
Work make_device_work(Session& session, std::shared_ptr<DeviceOperation> operation, Work polled);
// For the engine.
std::unique_ptr<Task> make_device_task(std::shared_ptr<DeviceOperation> operation);
// Work of MPI that a host with NCCL waits for; `what` as "all_reduce of tensor".
Work make_host_work(Session& session, std::string what, Work work);

}  // namespace trireme::nccl
