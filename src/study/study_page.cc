#include "trireme/study/study_page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/report/svg_plot.h"
#include "trireme/study/conditions.h"

#include "study/scaling_files.h"

namespace trireme::scaling {
namespace {

PlotMark mark_of(const NodeCount& count, const Estimate& estimate, const char* what) {
  const double half = estimate.half_width.value_or(0.0);
  return {static_cast<double>(count.nodes), estimate.mean,
          fmt::format("{}, ranks {}: {} {}{}", counted(count.nodes, "node"), count.ranks, what,
                      plain_number(estimate.mean),
                      half > 0.0 ? fmt::format(" ± {}", plain_number(half)) : ""),
          half};
}

std::vector<double> counts_of(const Series& series) {
  std::vector<double> nodes;
  for (const NodeCount& count : series.counts) nodes.push_back(count.nodes);
  return nodes;
}

// Returns a law as a smooth line. `base` is the rate that counts as 1.
PlotLine law_line(const std::string& name, const Law& law, const Series& series, double base,
                  int colour) {
  PlotLine line{name, {}, colour, true, false};
  const double from = series.counts.front().nodes, to = series.counts.back().nodes;
  for (int i = 0; i <= 60; ++i) {
    const double nodes = from + (to - from) * i / 60;
    line.marks.push_back({nodes, law.rate(nodes) / base, ""});
  }
  return line;
}

// Returns what was predicted, against the measured rate that counts as 1.
PlotLine predicted_line(const Series& series) {
  PlotLine line{"predicted", {}, 3, true};
  const double base = series.counts.front().rate.mean;
  for (const NodeCount& count : series.counts) {
    if (!count.predicted) continue;
    const auto& [rate, low, high] = *count.predicted;
    line.marks.push_back({static_cast<double>(count.nodes), rate / base,
                          fmt::format("{}: {} {} predicted, {} to {}", counted(count.nodes, "node"),
                                      plain_number(rate), series.unit.rate(), plain_number(low),
                                      plain_number(high))});
  }
  return line;
}

Plot speedup_plot(const Series& series) {
  const NodeCount& base = series.counts.front();
  PlotLine measured{"measured", {}, 0}, ideal{"ideal", {}, 5, true, false};
  for (const NodeCount& count : series.counts) {
    measured.marks.push_back(mark_of(count, count.speedup, "speedup"));
    ideal.marks.push_back(
        {static_cast<double>(count.nodes), static_cast<double>(count.nodes) / base.nodes, ""});
  }
  Plot plot{.title = "Speedup",
            .x_label = "nodes",
            .y_label = "against " + counted(base.nodes, "node"),
            .lines = {ideal},
            .x_ticks = counts_of(series),
            .from_zero = true};
  if (series.amdahl && series.counts.size() > 1) {
    plot.lines.push_back(law_line("Amdahl", *series.amdahl, series, base.rate.mean, 1));
  }
  if (series.universal) {
    plot.lines.push_back(law_line("universal law", *series.universal, series, base.rate.mean, 2));
  }
  if (PlotLine predicted = predicted_line(series); !predicted.marks.empty()) {
    plot.lines.push_back(std::move(predicted));
  }
  plot.lines.push_back(measured);
  return plot;
}

Plot efficiency_plot(const Series& series) {
  PlotLine line{"", {}, 0};
  double most = 1.0;
  for (const NodeCount& count : series.counts) {
    line.marks.push_back(mark_of(count, count.efficiency, "efficiency"));
    most = std::max(most, count.efficiency.mean + count.efficiency.half_width.value_or(0.0));
  }
  Plot plot{.title = "Parallel efficiency",
            .x_label = "nodes",
            .y_label = "speedup per node",
            .lines = {line},
            .x_ticks = counts_of(series),
            .from_zero = true};
  plot.y_most = std::ceil(most * 10 - 1e-6) / 10;
  return plot;
}

Plot gain_plot(const Series& series, const std::string& title, const std::string& unit,
               double scale, std::optional<double> NodeCount::*gained, Estimate NodeCount::*total) {
  PlotLine added{"each added node", {}, 0}, mean{"mean per node", {}, 1, true};
  for (const NodeCount& count : series.counts) {
    const double nodes = count.nodes, each = (count.*total).mean / nodes / scale;
    mean.marks.push_back(
        {nodes, each,
         fmt::format("{}: {} {} each", counted(count.nodes, "node"), plain_number(each), unit)});
    if (!(count.*gained)) continue;
    const double gain = *(count.*gained) / scale;
    added.marks.push_back({nodes, gain,
                           fmt::format("up to {}: {} {} each", counted(count.nodes, "node"),
                                       plain_number(gain), unit)});
  }
  return {.title = title,
          .x_label = "nodes",
          .y_label = unit,
          .lines = {added, mean},
          .x_ticks = counts_of(series),
          .from_zero = true};
}

std::string rows_of(const Series& series) {
  const bool planned = std::ranges::any_of(
      series.counts, [](const NodeCount& count) { return count.predicted.has_value(); });
  std::vector<std::vector<std::string>> rows;
  for (const NodeCount& count : series.counts) {
    const auto percent = [](double part) { return fmt::format("{:.1f} %", 100 * part); };
    rows.push_back({std::to_string(count.nodes), std::to_string(count.ranks),
                    count.grid.extents_text("x"), std::to_string(count.repeats),
                    estimate_text(count.rate, 1, 0), estimate_text(count.speedup, 1, 2),
                    estimate_text(count.efficiency, 1, 2), percent(count.shares.computation),
                    percent(count.shares.communication), percent(count.shares.data),
                    percent(count.shares.checkpoint),
                    estimate_text(count.memory_bandwidth, 1e9, 1)});
    if (planned) rows.back().push_back(predicted_text(count));
  }
  std::vector<std::string> columns = {
      "nodes",      "ranks",       "grid",          "repeats", series.unit.rate(), "speedup",
      "efficiency", "computation", "exposed comm.", "data",    "checkpoint",       "memory, GB/s"};
  if (planned) columns.push_back("predicted " + std::string(series.unit.rate()));
  return html_table(columns, rows);
}

std::vector<std::string> row_of(const char* name, const Law& law) {
  const auto nodes = [](const std::optional<double>& at) {
    return at ? fmt::format("{:.1f}", *at) : std::string("none");
  };
  return {name,
          short_number(law.one_node),
          fmt::format("{:.4f}", law.contention),
          fmt::format("{:.6f}", law.coherency),
          fmt::format("{:.1f} %", 100 * law.error),
          nodes(law.peak()),
          nodes(law.half_efficiency())};
}

std::string laws_of(const Series& series) {
  std::vector<std::vector<std::string>> rows;
  if (series.amdahl) rows.push_back(row_of("Amdahl", *series.amdahl));
  if (series.universal) rows.push_back(row_of("universal", *series.universal));
  std::string html;
  if (!rows.empty()) {
    html += html_table({"fitted law", series.unit.rate() + " of one node", "contention",
                        "coherency", "error", "knee, nodes", "half efficiency, nodes"},
                       rows);
  }
  for (const std::string& remark : series.remarks) {
    html += fmt::format("<p class=\"remark\">{}.</p>\n", escape_html(remark));
  }
  return html;
}

std::string shares_of(const Series& series) {
  std::vector<ShareBar> bars;
  for (const NodeCount& count : series.counts) {
    bars.push_back({counted(count.nodes, "node"),
                    {count.shares.computation, count.shares.communication, count.shares.data,
                     count.shares.checkpoint}});
  }
  return svg_of_shares("Where the time goes",
                       {"computation", "exposed communication", "data", "checkpoint"}, bars);
}

std::string section_of(const Series& series) {
  std::string html = fmt::format("<h2>{}</h2>\n", escape_html(series.name()));
  html += rows_of(series) + "<div class=\"plots\">\n";
  const auto add = [&](const std::string& svg) { html += "<figure>" + svg + "</figure>\n"; };
  add(svg_of(speedup_plot(series)));
  add(svg_of(efficiency_plot(series)));
  add(svg_of(gain_plot(series, "Throughput gained", series.unit.rate() + " a node", 1.0,
                       &NodeCount::added_rate, &NodeCount::rate)));
  add(svg_of(gain_plot(series, "Memory bandwidth gained", "GB/s a node", 1e9,
                       &NodeCount::added_bandwidth, &NodeCount::memory_bandwidth)));
  html += "</div>\n";
  html += "<figure class=\"shares\">" + shares_of(series) + "</figure>\n";
  return html + laws_of(series);
}

// Shows where each run was made, so that one can look into a strange result.
std::string runs_of(const std::vector<PointResult>& runs, const tasks::Unit& unit) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [point, measured, ran_on] : runs) {
    const auto known = [&](const std::string& text) {
      return !ran_on ? "not recorded" : text.empty() ? "none" : text;
    };
    rows.push_back({point.name(), fmt::format("{:.0f}", measured.units_per_second),
                    plain_number(measured.step_seconds), known(ran_on ? ran_on->job : ""),
                    known(ran_on ? host_ranges(ran_on->hosts) : "")});
  }
  return "<h2>Runs</h2>\n" + html_table({"run", unit.rate(), "s a step", "job", "hosts"}, rows);
}

std::string verdicts_section(const StudyPage& study) {
  std::string html =
      fmt::format("<h2>Verdict{}</h2>\n", study.done < study.planned ? " so far" : "");
  for (const std::string& verdict : verdicts_of(study.series, study.least_efficiency)) {
    html += fmt::format("<p>{}.</p>\n", escape_html(verdict));
  }
  return html;
}

}  // namespace

std::string page_of_study(const StudyPage& study) {
  const bool goes_on = study.done < study.planned;
  std::string body =
      fmt::format("<h1>Scaling study</h1>\n<p class=\"state\">{} of {} points are measured</p>\n",
                  study.done, study.planned);
  if (!study.series.empty()) body += verdicts_section(study);
  body += html_facts(study.facts);
  for (const std::string& line : differences_of(study.runs)) {
    body += fmt::format("<p class=\"remark\">{}.</p>\n", escape_html(line));
  }
  for (const Series& series : study.series) body += section_of(series);
  if (study.series.empty()) body += "<p class=\"remark\">Nothing is measured yet.</p>\n";
  body += fmt::format(
      "<p class=\"remark\">± is the 95 % confidence interval of the mean over repeats (Student's "
      "t). The laws are rate(n) = n r / (1 + contention (n - 1) + coherency n (n - 1)), Amdahl's "
      "with coherency 0, fitted by least squares of relative errors, unless the ± of {} is "
      "more than {:.0f} % of the mean at some number of nodes. The knee is where one more node "
      "makes it slower. Of time, the slowest rank counts; memory is what all ranks reach at once "
      "in a triad. At the fewest nodes strong and weak scaling are the same: their runs count in "
      "both.</p>\n",
      study.unit.rate(), 100 * kWideScatter);
  if (!study.runs.empty()) body += runs_of(study.runs, study.unit);
  return html_page("Scaling study", goes_on, body);
}

}  // namespace trireme::scaling
