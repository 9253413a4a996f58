// A communication as a small state machine that a thread advances when it has time.
#pragma once

namespace trireme {

class Task {
 public:
  enum class Step {
    kIdle,   // nothing happened since the last call
    kMoved,  // a phase ended, more are to come
    kDone,
  };
  virtual ~Task() = default;

  // Asked, once it is the head of its lane, until it says yes; never waits. The operation counts as
  // begun then, and is advanced: one that a device has no data for yet is missing, and not under
  // way. What it throws ends it.
  virtual bool may_begin() { return true; }

  // Does what can be done now and returns; never waits. Not called again after kDone or a throw.
  virtual Step advance() = 0;
};

}  // namespace trireme
