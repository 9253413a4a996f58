#include <filesystem>
#include <limits>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/options.h"
#include "trireme/report/islands_page.h"
#include "trireme/report/run_history.h"
#include "trireme/report/run_page.h"
#include "trireme/report/sweep_page.h"

#include "cli/commands.h"
#include "cli/islands_view.h"
#include "cli/live_screen.h"
#include "cli/outputs.h"
#include "cli/plot.h"
#include "cli/sweep_view.h"
#include "cli/top_view.h"

namespace trireme::cli {
namespace {

ExitStatus print(const std::vector<std::string>& lines) {
  print_line(fmt::format("{}", fmt::join(lines, "\n")));
  return ExitStatus::kDone;
}

// What is shown of a run, of one that several jobs carry, and of a sweep.
std::vector<std::string> view_of(const RunHistory& run, const ViewSize& size) {
  return top_view(run, size, locale_is_utf8());
}
std::vector<std::string> view_of(const IslandsHistory& run, const ViewSize& size) {
  return islands_view(run, size);
}
std::vector<std::string> view_of(const SweepHistory& sweep, const ViewSize& size) {
  return sweep_view(sweep, size);
}

// What is printed once into a pipe or a file is whole, and a table may be long and wide.
ViewSize printed_size(const RunHistory&) {
  return LiveScreen::on_terminal() ? LiveScreen::size() : ViewSize{.whole = true};
}
ViewSize whole_table() {
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  return {.columns = kAny, .rows = kAny, .whole = true};
}
ViewSize printed_size(const IslandsHistory&) {
  return whole_table();
}
ViewSize printed_size(const SweepHistory&) {
  return whole_table();
}

bool is_finished(const RunHistory& run) {
  return run.state() == RunState::kFinished;
}
bool is_finished(const IslandsHistory& run) {
  return run.finished();
}
bool is_finished(const SweepHistory& sweep) {
  return sweep.finished();
}

std::string picture_of(const RunHistory& run) {
  return picture_of_losses(run);
}
std::string picture_of(const IslandsHistory& run) {
  return picture_of_islands(run);
}
std::string picture_of(const SweepHistory& sweep) {
  return picture_of_sweep(sweep);
}

std::string page_of(const RunHistory& run, const std::string&) {
  return page_of_run(run);
}
std::string page_of(const IslandsHistory& run, const std::string& path) {
  return page_of_islands(run, std::filesystem::path(path).parent_path().string());
}
std::string page_of(const SweepHistory& sweep, const std::string& path) {
  return page_of_sweep(sweep, std::filesystem::path(path).parent_path().string());
}

struct TopRequest {
  std::string folder;
  double every = 1.0;
  bool once = false;
  std::optional<std::string> svg, html;  // files to write
};

// Shows the run until it is finished or the user quits. The last view stays on the terminal.
template <class History>
ExitStatus watch(History& history, double every) {
  std::vector<std::string> lines;
  {
    LiveScreen screen;
    while (true) {
      lines = view_of(history, LiveScreen::size());
      screen.show(lines);
      if (is_finished(history)) break;
      if (screen.wait(every) == LiveScreen::Wake::kQuit) break;
      history.update();
    }
  }
  return print(lines);
}

template <class History>
ExitStatus top(const TopRequest& request) {
  NamedOutput svg(request.svg.value_or("")), html(request.html.value_or(""));
  History history(request.folder);
  if (svg.is_there()) svg.write_whole(picture_of(history));
  if (html.is_there()) html.write_whole(page_of(history, *request.html));
  if (request.svg || request.html) return ExitStatus::kDone;
  if (!request.once && LiveScreen::possible()) return watch(history, request.every);
  return print(view_of(history, printed_size(history)));
}

ExitStatus top_of_folder(const TopRequest& request) {
  if (IslandsHistory::is_islands(request.folder)) return top<IslandsHistory>(request);
  return SweepHistory::is_sweep(request.folder) ? top<SweepHistory>(request)
                                                : top<RunHistory>(request);
}

}  // namespace

Work parse_top(const Arguments& arguments) {
  std::vector<std::string> folders;
  TopRequest request;
  Limit seconds = at_least(0.1);
  seconds.most = 86400;
  Options options("trireme top FOLDER [--every SECONDS] [--once] [--svg FILE] [--html FILE]");
  options.add_positional("FOLDER", folders,
                         "the folder of a run or of a sweep; only its files are read, so any node "
                         "will do; q ends, and so does a finished run");
  options.add("every", request.every, "seconds", "look this often", seconds);
  options.add("once", request.once, "", "print once, as is done where there is no terminal");
  options.add("svg", request.svg, "", "draw the losses into this SVG file and end");
  options.add("html", request.html, "", "write the report into this file and end");
  options.paths({"svg", "html"});
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  require_single_process("top");
  begin_outputs({request.svg.value_or(""), request.html.value_or("")});
  if (folders.size() != 1) {
    throw ConfigError(fmt::format(
        "top takes the folder of one run or sweep, as in trireme top run, not {}", folders.size()));
  }
  request.folder = folders[0];
  return {.alone = [request] { return top_of_folder(request); }, .on_ranks = {}};
}

}  // namespace trireme::cli
