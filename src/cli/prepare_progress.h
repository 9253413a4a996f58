// How far `trireme prepare` is.
#pragma once

#include <string>

#include "trireme/io/prepare.h"

namespace trireme::cli {

// On a terminal one line that is written over several times a second; elsewhere a line of its own
// every ten seconds.
class PrepareProgressLine {
 public:
  PrepareProgressLine();
  ~PrepareProgressLine() { clear(); }
  PrepareProgressLine(const PrepareProgressLine&) = delete;
  PrepareProgressLine& operator=(const PrepareProgressLine&) = delete;

  void show(const PrepareProgress& progress);
  void clear();  // takes the line away from the terminal

 private:
  bool terminal_;
  bool shown_ = false;
  std::string phase_;
  double last_seconds_ = 0;
};

}  // namespace trireme::cli
