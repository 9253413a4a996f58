// Work of a GPU that is captured once and replayed: the host then queues all of it by one call.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "trireme/tensor/allocator.h"
#include "trireme/tensor/cuda.h"

namespace trireme::cuda {

// The work may use several streams, which part from one and come back to it. It keeps the addresses
// that it was captured with: memory that it allocates is this object's between two replays too, and
// a tensor that it leaves behind holds what the last replay wrote there. What lies elsewhere must
// stay where it is.
class CapturedWork {
 public:
  // `allocator`: of device memory (make_device_allocator). All outlive this object.
  CapturedWork(std::shared_ptr<Runtime> runtime, const Stream& stream,
               const std::shared_ptr<Allocator>& allocator);
  // Waits for the stream, but not where an exception is in flight.
  ~CapturedWork();
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;

  // Queues the work as it is, before capture() or between replays. The first time libraries do
  // what they do once, and the memory for capture() is found.
  void rehearse(const std::function<void()>& queue_work);
  // Captures the work; nothing runs. CudaError where it cannot be captured: nothing is left of the
  // attempt then but what the host itself did.
  void capture(const std::function<void()>& queue_work);
  // Queues what was captured on the stream. CudaError where it was given up.
  void replay();
  // For whoever must end what was captured while it may be running, from any thread, also when this
  // object is gone: there are no more replays, and nothing is left of the graph once the last one
  // ends.
  std::function<void()> give_up() const;

  bool captured() const { return captured_; }
  std::size_t operations() const { return operations_; }  // kernels, copies and the like

 private:
  class Memory;
  class Graph;
  void abandon() noexcept;

  const std::shared_ptr<Runtime> runtime_;
  const Stream stream_;
  const std::unique_ptr<Memory> memory_;
  const std::shared_ptr<Graph> graph_;
  bool captured_ = false;
  std::size_t operations_ = 0;
};

}  // namespace trireme::cuda
