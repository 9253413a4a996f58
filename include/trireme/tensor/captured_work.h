// GPU work that is captured once and replayed: the host then queues all of it by one call.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "trireme/tensor/allocator.h"
#include "trireme/tensor/cuda.h"

namespace trireme::cuda {

// The work may use several streams, which fork from one stream and join it again. It keeps the
// addresses that it was captured with. So memory that it allocates stays with this object between
// two replays, and a tensor that it leaves behind holds what the last replay wrote there. Any other
// memory that it uses must stay where it is.
class CapturedWork {
 public:
  // `allocator` is of device memory (make_device_allocator). All arguments outlive this object.
  CapturedWork(std::shared_ptr<Runtime> runtime, const Stream& stream,
               const std::shared_ptr<Allocator>& allocator);
  // Waits for the stream, unless an exception is in flight.
  ~CapturedWork();
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;

  // Queues the work without capturing it, before capture() or between replays. The first time,
  // libraries do their one-time setup, and the memory for capture() is allocated.
  void rehearse(const std::function<void()>& queue_work);
  // Captures the work; nothing runs. Throws CudaError if it cannot be captured; then nothing of the
  // attempt remains except what the host itself did.
  void capture(const std::function<void()>& queue_work);
  // Queues the captured work on the stream. Throws CudaError if it was given up.
  void replay();
  // Returns a function that ends the captured work, even while it may be running. It may be called
  // from any thread, also after this object is gone. There are no more replays then, and the graph
  // is freed when the last one ends.
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
