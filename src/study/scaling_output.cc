// The results of a study as CSV files and as text for the terminal.
#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/study/conditions.h"

#include "study/scaling_files.h"

namespace trireme::scaling {
namespace {

std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : std::string();
}

// Returns a text as a CSV field, quoted if necessary.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? "\"\"" : std::string(1, c);
  return field + "\"";
}

// fmt counts ± as one column, so the columns stay aligned.
std::string line_of(const NodeCount& count) {
  const TimeShares& s = count.shares;
  return fmt::format(
      "{:>5} {:>5} {:>9} {:>17} {:>12} {:>12} {:>5.1f} {:>5.1f} {:>5.1f} {:>5.1f} {:>9}\n",
      count.nodes, count.ranks, count.grid.extents_text("x"), estimate_text(count.rate, 1, 0),
      estimate_text(count.speedup, 1, 2), estimate_text(count.efficiency, 1, 2),
      100 * s.computation, 100 * s.communication, 100 * s.data, 100 * s.checkpoint,
      fmt::format("{:.1f}", count.memory_bandwidth.mean / 1e9));
}

// Returns a line of what was predicted, with its error; "" where nothing was.
std::string predicted_line(const Series& series) {
  std::vector<std::string> all;
  for (const NodeCount& count : series.counts) {
    if (count.predicted) {
      all.push_back(fmt::format("{} on {}", predicted_text(count), counted(count.nodes, "node")));
    }
  }
  return all.empty() ? "" : fmt::format("predicted: {}\n", fmt::join(all, ", "));
}

std::string law_line(const char* name, const Law& law) {
  std::string text = fmt::format("{}: contention {:.4f}, coherency {:.6f}, error {:.1f} %", name,
                                 law.contention, law.coherency, 100 * law.error);
  if (law.peak()) text += fmt::format("; knee at {:.1f} nodes", *law.peak());
  if (law.half_efficiency())
    text += fmt::format("; half efficiency at {:.1f} nodes", *law.half_efficiency());
  return text + "\n";
}

}  // namespace

std::string estimate_text(const Estimate& estimate, double scale, int digits) {
  if (!estimate.half_width) return fmt::format("{:.{}f}", estimate.mean / scale, digits);
  return fmt::format("{:.{}f} ± {:.{}f}", estimate.mean / scale, digits,
                     *estimate.half_width / scale, digits);
}

std::string predicted_text(const NodeCount& count) {
  if (!count.predicted) return "";
  return fmt::format("{:.0f} ({:+.1f} %)", count.predicted->rate,
                     100 * (count.predicted->rate / count.rate.mean - 1));
}

std::string points_csv(const StudyPlan& plan, const std::vector<PointResult>& results) {
  std::string csv = fmt::format(
      "mode,nodes,ranks,{},repeat,steps,{},step_s,comm_s,wait_data_s,checkpoint_s,"
      "memory_bytes_per_s,point,job,hosts\n",
      dimension_names(","), unit_of(plan).rate_key());
  for (const auto& [point, m, ran_on] : results) {
    const bool both = plan.modes.size() > 1 && twin_of(plan, point);
    csv += fmt::format(
        "{},{},{},{},{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{},{},{}\n",
        both ? "both" : name_of(point.mode), point.nodes, point.ranks, point.grid.extents_text(","),
        point.repeat, m.steps, m.units_per_second, m.step_seconds, m.communication_seconds,
        m.data_seconds, m.checkpoint_seconds, m.memory_bandwidth, point.name(),
        quoted(ran_on ? ran_on->job : ""), quoted(ran_on ? host_ranges(ran_on->hosts) : ""));
  }
  return csv;
}

std::string summary_csv(const StudyPlan& plan, const std::vector<Series>& series) {
  const tasks::Unit unit = unit_of(plan);
  std::string csv = fmt::format(
      "mode,{},nodes,ranks,repeats,{rate},{rate}_ci95,speedup,"
      "speedup_ci95,efficiency,efficiency_ci95,computation,communication,data,checkpoint,"
      "memory_bytes_per_s,added_{rate},added_memory_bytes_per_s,"
      "node_hours_per_billion_{many},predicted_{rate},predicted_low,predicted_high\n",
      dimension_names(",", kModelAxes), fmt::arg("rate", unit.rate_key()),
      fmt::arg("many", unit.many));
  for (const Series& one : series) {
    for (const NodeCount& c : one.counts) {
      const auto said = [&](double Predicted::*figure) {
        return cell(c.predicted ? std::optional(*c.predicted.*figure) : std::nullopt);
      };
      csv += fmt::format(
          "{},{},{},{},{},{:.6g},{},{:.6g},{},{:.6g},{},{:.4f},{:.4f},{:.4f},{:.4f},{:.6g},{},"
          "{},{:.6g},{},{},{}\n",
          name_of(one.mode), one.replica.extents_text(",", kModelAxes), c.nodes, c.ranks, c.repeats,
          c.rate.mean, cell(c.rate.half_width), c.speedup.mean, cell(c.speedup.half_width),
          c.efficiency.mean, cell(c.efficiency.half_width), c.shares.computation,
          c.shares.communication, c.shares.data, c.shares.checkpoint, c.memory_bandwidth.mean,
          cell(c.added_rate), cell(c.added_bandwidth), node_hours_per_billion(c),
          said(&Predicted::rate), said(&Predicted::low), said(&Predicted::high));
    }
  }
  return csv;
}

std::string table_of(const std::vector<Series>& series, const std::vector<std::string>& remarks) {
  std::string text;
  for (const Series& one : series) {
    text +=
        fmt::format("{}\n{:>5} {:>5} {:>9} {:>17} {:>12} {:>12} {:>5} {:>5} {:>5} {:>5} {:>9}\n",
                    one.name(), "nodes", "ranks", "grid", one.unit.rate(), "speedup", "efficiency",
                    "comp%", "comm%", "data%", "ckpt%", "mem GB/s");
    for (const NodeCount& count : one.counts) text += line_of(count);
    text += predicted_line(one);
    if (one.amdahl) text += law_line("Amdahl's law", *one.amdahl);
    if (one.universal) text += law_line("universal law", *one.universal);
    for (const std::string& remark : one.remarks) text += remark + "\n";
    text += '\n';
  }
  for (const std::string& remark : remarks) text += remark + "\n";
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<std::string> verdicts_of(const std::vector<Series>& series, double least_efficiency) {
  std::vector<std::string> lines;
  for (const Series& one : series) {
    lines.push_back(fmt::format("{}: {}", one.name(), verdict_of(one, least_efficiency)));
  }
  return lines;
}

}  // namespace trireme::scaling
