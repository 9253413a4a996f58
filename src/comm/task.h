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

  // Whether it is under way: until it says so, once it is the head of its lane, it is not recorded
  // as begun, and not advanced. What it throws ends it.
  virtual bool begun() { return true; }

  // Does what can be done now and returns; never waits. Not called again after kDone or a throw.
  virtual Step advance() = 0;
};

}  // namespace trireme
