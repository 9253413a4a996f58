#include "trireme/report/sweep_page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/report/html_page.h"
#include "trireme/report/svg_plot.h"

#include "report/page_links.h"
#include "report/step_marks.h"

namespace trireme {
namespace {

constexpr int kOtherColours = 5;           // besides the best run's
constexpr std::size_t kMostInLegend = 11;  // this many fit above a plot
constexpr std::size_t kMostMarks = 6000;   // in a plot

// Returns "optim.lr 0.001, run.seed 1": the values in which the run differs from others.
std::string values_of(const SweepHistory& sweep, const SweepRun& run) {
  std::string values;
  for (std::size_t i = 0; i < sweep.keys().size(); ++i) {
    values += fmt::format("{}{} {}", i == 0 ? "" : ", ", sweep.keys()[i], shown(run.values[i], 24));
  }
  return values;
}

// Returns "point 3 (optim.lr 0.001), ".
std::string title_of(const SweepHistory& sweep, const SweepRun& run) {
  const std::string values = values_of(sweep, run);
  return fmt::format("point {}{}, ", run.point, values.empty() ? "" : " (" + values + ")");
}

// Returns the way from a folder to the report of a run; empty if there is no such run.
std::string link_to(const SweepHistory& sweep, const SweepRun& run, const std::string& folder) {
  const RunHistory* history = sweep.history(run.point);
  return history == nullptr ? "" : link_to_report(history->folder(), folder);
}

// Returns a line for each run that has marks. The best run's comes last, so it lies above the rest.
template <class Marks>
std::vector<PlotLine> lines_of(const SweepHistory& sweep, const std::string& folder,
                               const Marks& marks) {
  std::vector<PlotLine> lines, best;
  int others = 0;
  for (const SweepRun& run : sweep.runs()) {
    const RunHistory* history = sweep.history(run.point);
    PlotLine line;
    if (history) line.marks = marks(*history, title_of(sweep, run));
    const int number = run.best ? 0 : others++;
    if (line.marks.empty()) continue;
    if (run.best || sweep.runs().size() <= kMostInLegend) {
      const std::string values = values_of(sweep, run);
      line.name = (values.empty() ? fmt::format("point {}", run.point) : values) +
                  (run.best ? " (best)" : "");
    }
    line.link = link_to(sweep, run, folder);
    line.colour = run.best ? 0 : 1 + number % kOtherColours;
    line.dashed = number / kOtherColours % 2 == 1;
    line.dots = false;
    (run.best ? best : lines).push_back(std::move(line));
  }
  lines.insert(lines.end(), best.begin(), best.end());
  return lines;
}

// The runs of a sweep are of one task.
std::string loss_label(const SweepHistory& sweep) {
  tasks::Unit unit;
  for (const SweepRun& run : sweep.runs()) {
    const RunHistory* history = sweep.history(run.point);
    if (history && !history->steps().empty()) unit = history->unit();
  }
  return fmt::format("nats a {}", unit.one);
}

Plot training_of(const SweepHistory& sweep, const std::string& folder) {
  const std::size_t most =
      std::max<std::size_t>(40, kMostMarks / std::max<std::size_t>(1, sweep.runs().size()));
  return {
      .title = "Training loss",
      .x_label = "step",
      .y_label = loss_label(sweep),
      .lines = lines_of(sweep, folder, [&](const RunHistory& history, const std::string& title) {
        return marks_of(
            history.steps(), "", [](const StepMetrics& m) { return m.loss; },
            std::min<std::size_t>(most, 400), title);
      })};
}

Plot validation_of(const SweepHistory& sweep, const std::string& folder) {
  return {.title = "Validation loss",
          .x_label = "step",
          .y_label = loss_label(sweep),
          .lines = lines_of(sweep, folder, [](const RunHistory& history, const std::string& title) {
            std::vector<PlotMark> marks;
            for (const Evaluation& e : history.evaluations()) {
              if (!std::isfinite(e.loss)) continue;
              marks.push_back({static_cast<double>(e.step), e.loss,
                               fmt::format("{}step {}: {:.4f}", title, e.step, e.loss)});
            }
            return marks;
          })};
}

std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "";
}

std::string table_of(const SweepHistory& sweep, const std::string& folder) {
  std::vector<std::string> head = {"point"};
  head.insert(head.end(), sweep.keys().begin(), sweep.keys().end());
  for (const char* name : {"step", "training loss", "validation loss", "", "state"}) {
    head.emplace_back(name);
  }
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> links;
  for (const SweepRun& run : sweep.runs()) {
    links.push_back(link_to(sweep, run, folder));
    std::vector<std::string> row = {std::to_string(run.point)};
    row.insert(row.end(), run.values.begin(), run.values.end());
    row.push_back(run.total_steps ? fmt::format("{} of {}", run.step, *run.total_steps)
                                  : std::to_string(run.step));
    row.push_back(loss_text(run.loss));
    row.push_back(loss_text(run.validation_loss));
    row.push_back(run.best ? "best" : "");
    row.push_back(run.state);
    rows.push_back(std::move(row));
  }
  return html_table(head, rows, links);
}

}  // namespace

std::string page_of_sweep(const SweepHistory& sweep, const std::string& page_folder) {
  const bool goes_on = std::any_of(sweep.runs().begin(), sweep.runs().end(),
                                   [](const SweepRun& run) { return run.running; });
  std::string body = fmt::format("<h1>Sweep</h1>\n<p class=\"state\">{}: {}</p>\n",
                                 escape_html(sweep.folder()), sweep.summary());
  const Plot training = training_of(sweep, page_folder),
             validation = validation_of(sweep, page_folder);
  if (training.lines.empty() && validation.lines.empty()) {
    body += "<p class=\"remark\">No step is done yet.</p>\n";
  } else {
    body += "<div class=\"plots\">\n";
    for (const Plot* plot : {&training, &validation}) {
      if (!plot->lines.empty()) body += "<figure>" + svg_of(*plot) + "</figure>\n";
    }
    body += "</div>\n";
  }
  body += fmt::format(
      "<p class=\"remark\">The training loss is the mean of the last {} steps. Best is the run "
      "with the "
      "lowest {} loss so far.</p>\n",
      SweepHistory::kLossSteps, sweep.judged_by_validation() ? "validation" : "training");
  return html_page(fmt::format("Sweep {}", sweep.folder()), goes_on,
                   body + table_of(sweep, page_folder));
}

std::string picture_of_sweep(const SweepHistory& sweep) {
  Plot training = training_of(sweep, "");
  for (PlotLine& line : training.lines) line.link.clear();  // a picture is put anywhere
  if (training.lines.empty()) {
    throw RunFolderError(
        fmt::format("{}: no step is done yet: there is nothing to draw", sweep.folder()));
  }
  return standalone_svg(svg_of(training));
}

}  // namespace trireme
