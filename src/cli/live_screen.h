// A terminal on which a view is redrawn repeatedly.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include <termios.h>

#include "cli/top_view.h"

namespace trireme::cli {

// While the object lives, the terminal shows its alternate screen without a cursor, keys arrive one
// by one, and Ctrl-C and similar signals arrive as kQuit, so that the terminal is always restored.
// Only one may exist at a time, in the main thread, while no other threads run.
class LiveScreen {
 public:
  // Returns whether standard output is a terminal that can move its cursor.
  static bool possible();
  // Returns whether standard output is a terminal at all.
  static bool on_terminal();
  // Returns the terminal's current size, or 80 x 24 if it is unknown.
  static ViewSize size();

  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  void show(const std::vector<std::string>& lines);

  enum class Wake { kTime, kRedraw, kQuit };
  // Waits until `seconds` have passed, the window size has changed, or the user quits (q, Ctrl-C, a
  // termination signal). Ctrl-Z stops the process here, with the terminal restored meanwhile.
  Wake wait(double seconds);

 private:
  void enter();
  void leave();
  Wake take_signal();
  Wake take_key();

  int signals_;
  sigset_t mask_before_;
  bool entered_ = false;
  bool keys_;  // standard input is a terminal
  termios terminal_before_ = {};
};

}  // namespace trireme::cli
