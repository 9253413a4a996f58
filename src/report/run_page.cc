#include "trireme/report/run_page.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/report/fabric_record.h"
#include "trireme/report/html_page.h"
#include "trireme/report/svg_plot.h"
#include "trireme/tasks/task.h"

#include "report/step_marks.h"

namespace trireme {
namespace {

constexpr std::size_t kLatest = 50;       // steps, averaged for "now"
constexpr std::size_t kMostEvents = 100;  // in the table
constexpr std::size_t kMostRanks = 32;    // in the table
constexpr double kMib = 1048576.0;

// Returns a line for each event except the run's first start. Checkpoints have their own colour.
std::vector<PlotEvent> event_lines(const std::vector<RunEvent>& events) {
  std::vector<PlotEvent> lines;
  bool first_start = true;
  for (const RunEvent& event : events) {
    if (event.kind == "start" && std::exchange(first_start, false)) continue;
    const std::string title =
        fmt::format("{} at step {}, {}{}{}", event.kind == "start" ? "started again" : event.kind,
                    event.step, utc_text(static_cast<std::int64_t>(event.time)),
                    event.detail.empty() ? "" : ": ", event.detail);
    lines.push_back({static_cast<double>(event.step), title, event.kind == "checkpoint" ? 2 : 3});
  }
  return lines;
}

// Returns "parameters 12 MiB, gradients 12 MiB"; empty if the run did not record it.
std::string kinds_of_memory(const StepMetrics& metrics) {
  std::string text;
  for (std::size_t use = 0; use < kMemoryUses; ++use) {
    if (metrics.memory_peak[use] <= 0.0) continue;
    text += fmt::format("{}{} {:.0f} MiB", text.empty() ? "" : ", ",
                        name_of(static_cast<MemoryUse>(use)), metrics.memory_peak[use] / kMib);
  }
  return text;
}

std::string share(double part) {
  return fmt::format("{:.1f} %", 100 * part);
}

Facts facts_of(const RunHistory& history) {
  Facts facts;
  const auto total = history.total_steps();
  facts.emplace_back("steps", total ? fmt::format("{} of {}", history.step(), *total)
                                    : std::to_string(history.step()));
  if (const auto left = history.seconds_left(); left && *left > 0.0) {
    facts.emplace_back("time left", duration_text(*left));
  }
  if (const auto& config = history.config()) {
    facts.emplace_back("model", models::summary(config->model));
    const int islands = config->grid.islands;
    const std::string grid = config->grid.shape().to_string();
    facts.emplace_back("grid",
                       islands > 1 ? fmt::format("{} on each of {} islands", grid, islands) : grid);
    const std::optional<int>& micro = config->batch.micro.number();
    facts.emplace_back("batch",
                       fmt::format("{} {} a step{}, micro-batches of {}", config->batch.global,
                                   tasks::task_of(config->model).samples_name(),
                                   islands > 1 ? " of each island" : "",
                                   micro ? std::to_string(*micro) : "what fits"));
    facts.emplace_back("precision", config->run.precision);
    const std::string planned = planned_text(history);
    if (!planned.empty()) facts.emplace_back("step", planned);
  }
  if (!history.steps().empty()) {
    const StepMetrics& last = history.steps().back();
    facts.emplace_back("loss", last.no_targets ? "none: the last step had no target"
                                               : fmt::format("{:.4f}", last.loss));
    if (!last.losses_of_islands.empty()) {
      facts.emplace_back("losses of islands", losses_text(last.losses_of_islands));
    }
    const StepAverages now = average(history.last_steps(kLatest));
    facts.emplace_back(fmt::format("last {} steps", now.steps),
                       fmt::format("{} {}, {} a step; {} exposed communication, {} "
                                   "waiting for data",
                                   short_number(now.units_per_second), history.unit().rate(),
                                   time_text(now.step_seconds), share(now.exposed_comm_share),
                                   share(now.wait_data_share)));
    facts.emplace_back("peak memory",
                       fmt::format("{:.0f} MiB a rank", last.needed_memory() / kMib));
    if (const std::string kinds = kinds_of_memory(last); !kinds.empty()) {
      facts.emplace_back("of tensors", kinds);
    }
  }
  if (!history.evaluations().empty()) {
    const Evaluation& last = history.evaluations().back();
    facts.emplace_back("evaluation loss", fmt::format("{:.4f} at step {}", last.loss, last.step));
    if (last.top1 && last.top5) {
      facts.emplace_back("evaluation accuracy",
                         fmt::format("top-1 {}, top-5 {}", share(*last.top1), share(*last.top5)));
    }
  }
  if (history.checkpoint()) {
    facts.emplace_back("last checkpoint",
                       fmt::format("step {}, {:.1f} MiB", history.checkpoint()->step,
                                   static_cast<double>(history.checkpoint()->bytes) / kMib));
  }
  return facts;
}

Plot losses_of(const RunHistory& history, std::vector<PlotEvent> events) {
  PlotLine training{"training", marks_of(history.steps(), "", [](const auto& m) { return m.loss; }),
                    0};
  PlotLine evaluation{"evaluation", {}, 1};
  training.dots = false;
  for (const Evaluation& e : history.evaluations()) {
    evaluation.marks.push_back({static_cast<double>(e.step), e.loss,
                                fmt::format("step {}: evaluation loss {:.4f}", e.step, e.loss)});
  }
  std::vector<PlotLine> lines = {training};
  if (!evaluation.marks.empty()) lines.push_back(evaluation);
  return {.title = "Loss",
          .x_label = "step",
          .y_label = fmt::format("nats a {}", history.unit().one),
          .lines = std::move(lines),
          .events = std::move(events)};
}

// Returns a plot of the accuracy, without lines if no evaluation has told it.
Plot accuracy_of(const RunHistory& history, std::vector<PlotEvent> events) {
  Plot plot{.title = "Accuracy",
            .x_label = "step",
            .y_label = "% of held-out samples",
            .lines = {},
            .events = std::move(events),
            .from_zero = true};
  const auto add = [&](const char* name, std::optional<double> Evaluation::*part, int colour) {
    PlotLine line{name, {}, colour};
    for (const Evaluation& e : history.evaluations()) {
      if (!(e.*part)) continue;
      line.marks.push_back({static_cast<double>(e.step), 100.0 * *(e.*part),
                            fmt::format("step {}: {} {}", e.step, name, share(*(e.*part)))});
    }
    if (!line.marks.empty()) plot.lines.push_back(std::move(line));
  };
  add("top-1", &Evaluation::top1, 1);
  add("top-5", &Evaluation::top5, 2);
  return plot;
}

std::string plots_of(const RunHistory& history, const std::vector<RunEvent>& events) {
  const std::vector<StepMetrics>& steps = history.steps();
  const std::vector<PlotEvent> marks = event_lines(events);
  const auto line = [&](const char* name, const std::string& unit, int colour, auto value) {
    PlotLine result{name, marks_of(steps, unit, value), colour};
    result.dots = false;
    return result;
  };
  const std::string rate = history.unit().rate();
  std::string html = "<div class=\"plots\">\n";
  const auto add = [&](const Plot& plot) { html += "<figure>" + svg_of(plot) + "</figure>\n"; };
  add(losses_of(history, marks));
  if (const Plot plot = accuracy_of(history, marks); !plot.lines.empty()) add(plot);
  add({.title = "Throughput",
       .x_label = "step",
       .y_label = rate,
       .lines = {line("", " " + rate, 0, [](const auto& m) { return m.units_per_second; })},
       .events = marks,
       .from_zero = true});
  add({.title = "Time of a step",
       .x_label = "step",
       .y_label = "seconds",
       .lines = {line("computation", " s", 0,
                      [](const auto& m) {
                        return std::max(
                            0.0, m.step_seconds - m.wait_data_seconds - m.exposed_comm_seconds);
                      }),
                 line("exposed communication", " s", 1,
                      [](const auto& m) { return m.exposed_comm_seconds; }),
                 line("data", " s", 2, [](const auto& m) { return m.wait_data_seconds; })},
       .events = marks,
       .from_zero = true});
  add({.title = "Peak memory of a rank",
       .x_label = "step",
       .y_label = "MiB",
       .lines = {line("", " MiB", 0, [](const auto& m) { return m.needed_memory() / kMib; })},
       .events = marks,
       .from_zero = true});
  html += "</div>\n";
  if (!marks.empty()) {
    html +=
        "<p class=\"remark\">Dotted lines: checkpoints, stragglers, and where the run started "
        "again or stopped; each says so when the pointer rests on it.</p>\n";
  }
  return html;
}

// Returns a bar, which groups the uses of time into as many parts as there are colours, and a table
// of all uses.
std::string goodput_section(const RunHistory& history) {
  const Goodput goodput = history.goodput();
  if (!(goodput.whole > 0.0)) return "";
  const auto part = [&](std::initializer_list<TimeUse> uses) {
    double seconds = 0.0;
    for (const TimeUse use : uses) seconds += goodput.of(use);
    return seconds / goodput.whole;
  };
  using enum TimeUse;
  const std::string bar =
      svg_of_shares("Where the time went",
                    {"computation", "exposed communication", "data", "evaluation, checkpoints",
                     "failures, steps not kept", "queue, starting, waiting, other"},
                    {{"whole run",
                      {part({kComputation}), part({kCommunication}), part({kData}),
                       part({kEvaluation, kCheckpoint}), part({kNotKept, kFailure}),
                       part({kQueue, kStarting, kBetween, kMembers, kOther})}}});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < kTimeUses; ++i) {
    const auto use = static_cast<TimeUse>(i);
    if (use == TimeUse::kMembers && goodput.of(use) == 0.0) continue;
    rows.push_back({std::string(name_of(use)), time_text(goodput.of(use)),
                    share(goodput.of(use) / goodput.whole)});
  }
  rows.push_back({"whole run", time_text(goodput.whole), share(1.0)});
  return fmt::format(
             "<figure class=\"shares\">{}</figure>\n<h2>Goodput</h2>\n<p>{}. Goodput is the share "
             "of the whole time that was spent in steps whose result is kept.</p>\n",
             bar, escape_html(goodput_text(goodput))) +
         html_table({"where the time went", "time", "share"}, rows);
}

std::string table_of(const char* name, const std::vector<const RunEvent*>& events) {
  if (events.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  const std::size_t begin = events.size() > kMostEvents ? events.size() - kMostEvents : 0;
  for (std::size_t i = begin; i < events.size(); ++i) {
    const RunEvent& event = *events[i];
    rows.push_back({utc_text(static_cast<std::int64_t>(event.time)), std::to_string(event.step),
                    event.kind, event.seconds > 0.0 ? fmt::format("{:.2f}", event.seconds) : "",
                    event.detail});
  }
  return fmt::format("<h2>{}{}</h2>\n", name,
                     begin > 0 ? fmt::format(", the last {}", kMostEvents) : "") +
         html_table({"time (UTC)", "step", "event", "seconds", ""}, rows);
}

// Checkpoints are many, and have a table of their own below that of failures and starts.
std::string tables_of(const std::vector<RunEvent>& events) {
  std::vector<const RunEvent*> checkpoints, others;
  for (const RunEvent& event : events) {
    (event.kind == "checkpoint" ? checkpoints : others).push_back(&event);
  }
  return table_of("Events", others) + table_of("Checkpoints", checkpoints);
}

std::string bytes_rate(double bytes_per_second) {
  return bytes_per_second > 0.0 ? short_number(bytes_per_second * 1e-6) : "";
}

// Shows the last window: all ranks, or those that the others wait for most if there are too many.
std::string ranks_of(const RankTable& table) {
  std::vector<std::size_t> order(table.ranks.size());
  std::iota(order.begin(), order.end(), 0);
  if (order.size() > kMostRanks) {
    const auto slower = [&](std::size_t a, std::size_t b) {
      return table.ranks[a].times_peers > table.ranks[b].times_peers;
    };
    std::partial_sort(order.begin(), order.begin() + kMostRanks, order.end(), slower);
    order.resize(kMostRanks);
  }
  std::vector<std::vector<std::string>> rows;
  for (const std::size_t i : order) {
    const RankTimes& r = table.ranks[i];
    const NodeLink& node = table.nodes[static_cast<std::size_t>(r.node)];
    rows.push_back({std::to_string(i), node.host, fmt::format("{}", fmt::join(r.place, ", ")),
                    short_number(r.compute_seconds), short_number(r.wait_data_seconds),
                    short_number(r.comm_seconds),
                    r.times_peers > 0.0 ? fmt::format("{:.2f}", r.times_peers) : "",
                    fmt::format("{:.0f}", r.memory_bytes / kMib),
                    bytes_rate(node.bytes_per_second)});
  }
  std::string html = fmt::format(
      "<h2>Ranks, steps {} to {}{}</h2>\n", table.first_step, table.last_step,
      order.size() < table.ranks.size() ? fmt::format(", the {} slowest", order.size()) : "");
  for (const std::string& straggler : table.stragglers) {
    html += fmt::format("<p class=\"remark\">Straggler: {}.</p>\n", escape_html(straggler));
  }
  return html + html_table({"rank", "node", dimension_names(", "), "computation, s a step",
                            "data, s", "exposed communication, s", "times its peers", "MiB",
                            "link of the node, MB/s"},
                           rows);
}

std::string known_microseconds(double seconds) {
  return seconds > 0.0 ? microseconds_text(seconds) : "";
}

// "a step: data ranks sum 12 MB, neighbouring stages exchange 3 MB"
std::string traffic_text(const GridTraffic& traffic) {
  std::string text;
  for (const auto& [what, bytes] :
       {std::pair("data ranks sum", traffic.data), std::pair("tensor ranks sum", traffic.tensor),
        std::pair("neighbouring stages exchange", traffic.pipeline),
        std::pair("first and last stage sum", traffic.ends)}) {
    if (bytes <= 0.0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what,
                        size_text(static_cast<std::uint64_t>(bytes)));
  }
  return text.empty() ? "nothing" : text;
}

std::string network_of(const FabricRecord& record) {
  return fmt::format(
      "<p>The network ({}) with the ranks at their places, and what a step sends by the estimate: "
      "{}. A bar beside a host and a line between switches have the colour of the time for which "
      "they carry it; the pointer shows the figures.</p>\n<figure>{}</figure>\n",
      escape_html(record.source), traffic_text(record.traffic), svg_of(record));
}

std::string tuned_of(const std::vector<TunedCollective>& tuned) {
  if (tuned.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  for (const TunedCollective& one : tuned) {
    std::string tried;
    for (const auto& [algorithm, seconds] : one.tried) {
      tried +=
          fmt::format("{}{} {}", tried.empty() ? "" : ", ", algorithm, known_microseconds(seconds));
    }
    rows.push_back({one.communicator, one.collective, size_text(one.bytes), one.algorithm,
                    one.planned, tried});
  }
  return "<p>What comm.tune has measured: the median of some calls, each from when the last rank "
         "began to when the last one ended.</p>\n" +
         html_table({"communicator", "collective", "size", "takes", "took before", "tried, us"},
                    rows);
}

std::string communication_of(const CommunicationTable& table,
                             const std::optional<FabricRecord>& network) {
  if (table.communicators.empty() && !network) return "";
  std::vector<std::vector<std::string>> chosen, used;
  for (const CommunicatorRecord& one : table.communicators) {
    chosen.push_back({one.name, std::to_string(one.ranks), std::to_string(one.nodes), one.table});
  }
  for (const CollectiveRecord& one : table.collectives) {
    used.push_back({one.communicator, one.collective, size_text(one.bytes), one.algorithm,
                    std::to_string(one.count), known_microseconds(one.predicted_seconds),
                    known_microseconds(one.measured_seconds), bytes_rate(one.bus_bandwidth),
                    one.link_seconds > 0.0
                        ? fmt::format("{}: {:.0f} %", one.link, 100.0 * one.link_share())
                        : ""});
  }
  std::string html = fmt::format(
      "<h2>Communication</h2>\n<p>Algorithms by size {}. Order of sums: {}.</p>\n",
      table.source.empty() ? "are the default" : "are chosen for " + escape_html(table.source),
      escape_html(table.order));
  if (network) html += network_of(*network);
  if (table.communicators.empty()) return html;
  html += html_table({"communicator of rank 0", "ranks", "nodes", "algorithms"}, chosen);
  html += tuned_of(table.tuned);
  if (used.empty()) return html;
  return html +
         "<p>Its last collectives. The measured time is the median, and waits for ranks that come "
         "late are part of it. The bus bandwidth is what each rank must send at least, per second. "
         "The share of a link is that of the measured time for which the link carries messages by "
         "the prediction." +
         (table.left_out > 0
              ? fmt::format(" {} rows that took less time are left out.", table.left_out)
              : "") +
         "</p>\n" +
         html_table({"communicator", "collective", "size", "algorithm", "times", "predicted, us",
                     "measured, us", "bus bandwidth, MB/s", "share of the busiest link"},
                    used);
}

}  // namespace

std::string picture_of_losses(const RunHistory& history) {
  if (history.steps().empty()) {
    throw RunFolderError(
        fmt::format("{}: no step is done yet: there is nothing to draw", history.folder()));
  }
  return standalone_svg(svg_of(losses_of(history, {})));
}

std::string page_of_run(const RunHistory& history, const std::optional<std::string>& ended) {
  const std::vector<RunEvent>& events = history.events();
  const bool goes_on = !ended && history.state() == RunState::kRunning;
  const std::string state = ended.value_or(history.state_text());
  std::string body = fmt::format("<h1>Training run</h1>\n<p class=\"state\">{}: {}</p>\n",
                                 escape_html(history.folder()), escape_html(state));
  body += html_facts(facts_of(history));
  const auto skipped = std::count_if(history.steps().begin(), history.steps().end(),
                                     [](const StepMetrics& m) { return m.skipped; });
  if (skipped > 0) {
    body += fmt::format(
        "<p class=\"remark\">{} {} skipped: gradients were not "
        "finite.</p>\n",
        skipped, skipped == 1 ? "step was" : "steps were");
  }
  const auto without = std::ranges::count_if(history.steps(), &StepMetrics::no_targets);
  if (without > 0) {
    body += fmt::format("<p class=\"remark\">{} had no target and changed nothing.</p>\n",
                        counted(without, "step"));
  }
  if (history.steps().empty()) {
    body += "<p class=\"remark\">No step is done yet.</p>\n";
  } else {
    const std::vector<RunEvent> of_branch = events_of_branch(events);
    body += plots_of(history, of_branch) + goodput_section(history);
  }
  if (history.ranks()) body += ranks_of(*history.ranks());
  if (history.communication()) {
    body += communication_of(*history.communication(),
                             read_fabric_record(history.folder() + "/fabric.json"));
  }
  return html_page(fmt::format("Run {}", history.folder()), goes_on, body + tables_of(events));
}

}  // namespace trireme
