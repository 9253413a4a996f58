// A terminal that a view is drawn on again and again.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include <termios.h>

#include "cli/top_view.h"

namespace trireme::cli {

// While the object lives: the terminal's second screen without a cursor, keys arrive one by one,
// and Ctrl-C and its like come as kQuit, so that the terminal is always given back as it was. One
// at a time, in the main thread, while no other threads run.
class LiveScreen {
 public:
  // Whether standard output is a terminal that can move its cursor.
  static bool possible();
  // Room on the terminal, as it is now; where it does not say, 80 x 24.
  static ViewSize size();

  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  void show(const std::vector<std::string>& lines);

  enum class Wake { kTime, kRedraw, kQuit };
  // Until `seconds` have passed, the window has another size, or the user wants no more (q, Ctrl-C,
  // a signal to end). Ctrl-Z stops the process here, with the terminal given back meanwhile.
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
