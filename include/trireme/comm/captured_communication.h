// Communication that is captured with a GPU's work and replayed with it
// (trireme/tensor/captured_work.h).
#pragma once

#include <cstdint>
#include <functional>

namespace trireme {

// Made by Runtime::capture. While it is open, operations on tensors of the GPU become part of the
// capture: their Work can be waited for by streams of the capture alone, and never by the host.
// This one has nothing to capture: a process of one rank finds all in its stream.
class CapturedCommunication {
 public:
  CapturedCommunication() = default;
  virtual ~CapturedCommunication() = default;  // what is open is closed
  CapturedCommunication(const CapturedCommunication&) = delete;
  CapturedCommunication& operator=(const CapturedCommunication&) = delete;

  // Closes it: the stream of the capture comes after all that it holds.
  virtual void join() {}
  // `give_up` ends the graph that holds it, from any thread: what carries the communication cannot
  // be aborted after a fault while one does.
  virtual void held_by(std::function<void()> /*give_up*/) {}
  // Before each replay is queued: tells the flight recorder, and so the watchdog, what is to come.
  // `number`: what the number in device memory will be in it.
  virtual void replay(std::int64_t /*number*/) {}
};

}  // namespace trireme
