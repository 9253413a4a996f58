// The handle of a communication in flight.
#pragma once

#include <memory>

#include "trireme/tensor/device.h"

namespace trireme {

// A shared handle. It owns the tensors of its operation until the operation is done, so the caller
// may drop its own. A default-constructed Work is already done. wait_host throws the faults of the
// operation.
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
  // Blocks the host until the operation is done. It tests and yields, and never spins
  // (src/comm/README.md).
  void wait_host() const {
    if (state_) state_->wait_host();
  }
  // Work that is queued on `stream` from now on sees the result. On a CPU stream, and for tensors
  // of the host, this is the same as wait_host. Otherwise the host continues, and a fault that
  // comes later is thrown by the next operation; results that only streams have waited for are then
  // invalid.
  void wait_on(const Stream& stream) const {
    if (state_) state_->wait_on(stream);
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace trireme
