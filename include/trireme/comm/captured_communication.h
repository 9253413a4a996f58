// Communication that is captured with a GPU's work and replayed with it
// (trireme/tensor/captured_work.h).
#pragma once

#include <cstdint>
#include <functional>

namespace trireme {

// Made by Runtime::capture. While it is open, operations on tensors of the GPU become part of the
// capture. Only streams of the capture can wait for their Work, never the host. This base class
// captures nothing: it serves a process of one rank, whose operations are all in its stream.
class CapturedCommunication {
 public:
  CapturedCommunication() = default;
  virtual ~CapturedCommunication() = default;  // closes an open capture
  CapturedCommunication(const CapturedCommunication&) = delete;
  CapturedCommunication& operator=(const CapturedCommunication&) = delete;

  // Closes the capture. The stream of the capture then waits for all operations in it.
  virtual void join() {}
  // `give_up` ends the graph that holds this communication; it may be called from any thread. It is
  // needed because the backend cannot be aborted after a fault while a graph holds its
  // communicators.
  virtual void held_by(std::function<void()> /*give_up*/) {}
  // Call before each replay is queued. Tells the flight recorder, and so the watchdog, which
  // operations are about to run. `number` is the value that the number in device memory will have
  // in this replay.
  virtual void replay(std::int64_t /*number*/) {}
};

}  // namespace trireme
