// A function with a stack of its own, which can stop in the middle and go on later.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace trireme {

// All fibers of a thread run in it, one at a time. Each keeps its own exceptions in flight.
class Fiber {
 public:
  // `body` must not throw. Only the pages of the stack that it touches take memory. A page below
  // the stack ends the program if the stack overflows.
  Fiber(std::size_t stack_bytes, std::function<void()> body);
  // The body has ended or never begun.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it ends or calls suspend().
  void resume();
  // Called by the body: goes back to the caller of resume().
  void suspend();
  bool ended() const;
  // Bytes of the stack that have been touched so far, in whole pages.
  std::size_t stack_used() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
