// Files that nobody needs once the process is gone.
#pragma once

#include <string>

namespace trireme {

// Removes a file where a signal ends the process (Ctrl-C, scancel, a closed terminal), for as long
// as this object lives. The process then ends as that signal ends it. Threads that wait for a
// signal, as StopSignals has, get it all the same, since it is blocked then.
class GoneWithSignal {
 public:
  // Nothing is done while kMost others live.
  explicit GoneWithSignal(const std::string& path);
  ~GoneWithSignal();
  GoneWithSignal(const GoneWithSignal&) = delete;
  GoneWithSignal& operator=(const GoneWithSignal&) = delete;

  static constexpr int kMost = 16;

  // Lets such a signal wait, for as long as this object lives: a file that is being made has no
  // name here yet.
  class Wait {
   public:
    Wait();
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
  };

 private:
  std::string path_;
  int slot_ = -1;
};

}  // namespace trireme
