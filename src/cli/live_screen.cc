#include "cli/live_screen.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme::cli {
namespace {

// ECMA-48, and xterm's private modes: 1049 is the second screen, 25 the cursor.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kEraseRestOfLine = "\x1b[K";
constexpr std::string_view kEraseBelow = "\x1b[J";

}  // namespace

bool LiveScreen::possible() {
  const char* kind = std::getenv("TERM");
  return on_terminal() && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

bool LiveScreen::on_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

ViewSize LiveScreen::size() {
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col < 2 || window.ws_row < 2)
    return {};
  // Leaves out the last column, because terminals differ in what they do after it, and the last
  // row, where the shell's prompt will appear.
  return {static_cast<std::size_t>(window.ws_col) - 1, static_cast<std::size_t>(window.ws_row) - 1};
}

LiveScreen::LiveScreen() : keys_(::isatty(STDIN_FILENO) == 1) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT})
    sigaddset(&wanted, signal);
  signals_ = ::signalfd(-1, &wanted, SFD_CLOEXEC);
  if (signals_ < 0) throw InternalError(fmt::format("signalfd: {}", std::strerror(errno)));
  ::sigprocmask(SIG_BLOCK, &wanted, &mask_before_);
  if (keys_) keys_ = ::tcgetattr(STDIN_FILENO, &terminal_before_) == 0;
  enter();
}

LiveScreen::~LiveScreen() {
  leave();
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  ::close(signals_);
}

void LiveScreen::enter() {
  if (keys_) {
    termios raw = terminal_before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  if (!entered_) print_bytes(kEnter);
  entered_ = true;
}

void LiveScreen::leave() {
  if (entered_) print_bytes(kLeave);
  entered_ = false;
  if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before_);
}

void LiveScreen::show(const std::vector<std::string>& lines) {
  std::string frame(kHome);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) frame += "\r\n";
    frame += lines[i];
    frame += kEraseRestOfLine;
  }
  frame += kEraseBelow;
  print_bytes(frame);
}

LiveScreen::Wake LiveScreen::wait(double seconds) {
  std::array<pollfd, 2> watched = {pollfd{signals_, POLLIN, 0},
                                   pollfd{keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
  const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(seconds * 1000.0));
  if (ready <= 0) return Wake::kTime;
  if (watched[0].revents != 0) return take_signal();
  return take_key();
}

LiveScreen::Wake LiveScreen::take_signal() {
  signalfd_siginfo signal{};
  if (::read(signals_, &signal, sizeof(signal)) != static_cast<ssize_t>(sizeof(signal)))
    return Wake::kRedraw;
  switch (static_cast<int>(signal.ssi_signo)) {
    case SIGWINCH:
      return Wake::kRedraw;
    case SIGTSTP:
      leave();
      ::raise(SIGSTOP);
      [[fallthrough]];
    case SIGCONT:
      enter();
      return Wake::kRedraw;
    default:
      return Wake::kQuit;
  }
}

LiveScreen::Wake LiveScreen::take_key() {
  char key = 0;
  const ssize_t count = ::read(STDIN_FILENO, &key, 1);
  if (count == 0) return Wake::kQuit;  // the terminal is gone
  return count == 1 && (key == 'q' || key == 'Q') ? Wake::kQuit : Wake::kRedraw;
}

}  // namespace trireme::cli
