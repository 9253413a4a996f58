#include "cli/prepare_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/log.h"
#include "trireme/base/text.h"

namespace trireme::cli {
namespace {

constexpr double kTerminalSeconds = 0.2, kLogSeconds = 10;

std::string describe(const PrepareProgress& progress) {
  if (progress.bytes_read == 0) return progress.phase;
  std::string text = fmt::format("{}: {}", progress.phase, size_text(progress.bytes_read));
  if (progress.bytes_total > 0) {
    text += fmt::format(" of {} ({}%)", size_text(progress.bytes_total),
                        100 * progress.bytes_read / progress.bytes_total);
  }
  return text + fmt::format(", {} {}, {:.0f} s", progress.made, progress.unit, progress.seconds);
}

}  // namespace

PrepareProgressLine::PrepareProgressLine() : terminal_(isatty(STDOUT_FILENO) == 1) {}

void PrepareProgressLine::show(const PrepareProgress& progress) {
  const bool new_phase = phase_ != progress.phase;
  const double pause = terminal_ ? kTerminalSeconds : kLogSeconds;
  if (!(terminal_ && new_phase) && progress.seconds - last_seconds_ < pause) return;
  phase_ = progress.phase;
  last_seconds_ = progress.seconds;
  if (terminal_) {
    print_bytes(fmt::format("\r{:<78}", describe(progress)));
    shown_ = true;
  } else {
    print_line(describe(progress));
  }
}

void PrepareProgressLine::clear() {
  if (!shown_) return;
  print_bytes(fmt::format("\r{:<78}\r", ""));
  shown_ = false;
}

}  // namespace trireme::cli
