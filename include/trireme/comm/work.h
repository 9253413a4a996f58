// The handle of a communication that is under way.
#pragma once

#include <memory>

#include "trireme/tensor/device.h"

namespace trireme {

// Shared handle; owns the tensors of its operation until that is done, so the caller may drop its
// own. A default-made Work is already done. Faults of the operation are thrown from wait_host.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() = 0;
    virtual void wait_host() = 0;
    virtual void wait_on(const Stream& stream) = 0;
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool done() const { return !state_ || state_->done(); }
  // Blocks the host until the operation is done: tests and yields, never spins
  // (src/comm/README.md).
  void wait_host() const {
    if (state_) state_->wait_host();
  }
  // Work queued on `stream` from now on sees the result. On a CPU stream, and for tensors of the
  // host, the same as wait_host. Else the host goes on, and a fault that comes later is thrown by
  // the next operation: results that only streams have waited for are worth nothing then.
  void wait_on(const Stream& stream) const {
    if (state_) state_->wait_on(stream);
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace trireme
