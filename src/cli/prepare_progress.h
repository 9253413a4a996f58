// Progress of `trireme prepare`.
#pragma once

#include <string>

#include "trireme/io/prepare.h"

namespace trireme::cli {

// On a terminal, one line that is overwritten several times a second; elsewhere, a new line every
// ten seconds.
class PrepareProgressLine {
 public:
  PrepareProgressLine();
  ~PrepareProgressLine() { clear(); }
  PrepareProgressLine(const PrepareProgressLine&) = delete;
  PrepareProgressLine& operator=(const PrepareProgressLine&) = delete;

  void show(const PrepareProgress& progress);
  void clear();  // removes the line from the terminal

 private:
  bool terminal_;
  bool shown_ = false;
  std::string phase_;
  double last_seconds_ = 0;
};

}  // namespace trireme::cli
