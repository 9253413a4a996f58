// A communication as a small state machine. A thread advances it when it has time.
#pragma once

namespace trireme {

class Task {
 public:
  enum class Step {
    kIdle,   // nothing happened since the last call
    kMoved,  // a phase ended and more follow
    kDone,
  };
  virtual ~Task() = default;

  // Called repeatedly once the task is the head of its lane, until it returns true; must not wait.
  // Then the operation counts as begun and is advanced. Until then it counts as missing, not in
  // flight, for example while a device has no data for it yet. An exception ends the task.
  virtual bool may_begin() { return true; }

  // Does what can be done now and returns; must not wait. Not called again after kDone or an
  // exception.
  virtual Step advance() = 0;
};

}  // namespace trireme
