#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/config/options.h"
#include "trireme/io/whole_file.h"
#include "trireme/report/run_history.h"
#include "trireme/report/run_page.h"

#include "cli/commands.h"
#include "cli/live_screen.h"
#include "cli/plot.h"
#include "cli/top_view.h"

namespace trireme::cli {
namespace {

ExitStatus print(const std::vector<std::string>& lines) {
  print_line(fmt::format("{}", fmt::join(lines, "\n")));
  return ExitStatus::kDone;
}

// Shows the run until it is finished or the user quits. The last view stays on the terminal.
ExitStatus watch(RunHistory& history, double every, bool utf8) {
  std::vector<std::string> lines;
  {
    LiveScreen screen;
    while (true) {
      lines = top_view(history, LiveScreen::size(), utf8);
      screen.show(lines);
      if (history.state() == RunState::kFinished) break;
      if (screen.wait(every) == LiveScreen::Wake::kQuit) break;
      history.update();
    }
  }
  return print(lines);
}

ExitStatus top(const std::string& folder, double every, bool once) {
  RunHistory history(folder);
  const bool utf8 = locale_is_utf8();
  if (!once && LiveScreen::possible()) return watch(history, every, utf8);
  return print(top_view(history, LiveScreen::size(), utf8));
}

// The picture, the page, or both.
ExitStatus write_files(const std::string& folder, const std::optional<std::string>& svg,
                       const std::optional<std::string>& html) {
  const RunHistory history(folder);
  if (svg) write_whole_file(*svg, picture_of_losses(history));
  if (html) write_whole_file(*html, page_of_run(history));
  return ExitStatus::kDone;
}

}  // namespace

Work parse_top(const Arguments& arguments) {
  std::vector<std::string> folders;
  double every = 1.0;
  bool once = false;
  std::optional<std::string> svg, html;
  Limit seconds = at_least(0.1);
  seconds.most = 86400;
  Options options("trireme top RUN [--every SECONDS] [--once] [--svg FILE] [--html FILE]");
  options.add_positional(
      "RUN", folders,
      "a run's folder; only its files are read, so any node will do; q ends, and "
      "so does a finished run");
  options.add("every", every, "seconds", "look this often", seconds);
  options.add("once", once, "", "print once, as is done where there is no terminal");
  options.add("svg", svg, "", "draw the losses into this SVG file and end");
  options.add("html", html, "", "write the report into this file and end");
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  require_single_process("top");
  if (folders.size() != 1) {
    throw ConfigError(fmt::format("top takes the folder of one run, as in trireme top run, not {}",
                                  folders.size()));
  }
  if (svg || html) {
    return {.alone = [folder = folders[0], svg, html] { return write_files(folder, svg, html); },
            .on_ranks = {}};
  }
  return {.alone = [folder = folders[0], every, once] { return top(folder, every, once); },
          .on_ranks = {}};
}

}  // namespace trireme::cli
