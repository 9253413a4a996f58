#include "cli/top_view.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/base/utf8.h"

#include "cli/plot.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kRecentSteps = 50;
constexpr std::size_t kMostPlotRows = 16;
constexpr std::size_t kLatestEvents = 3, kMostStragglers = 3;

std::string row(std::string_view name, const std::string& value) {
  return fmt::format("{:<12}{}", name, value);
}

std::string progress(const RunHistory& history, std::size_t columns, bool utf8) {
  const std::int64_t step = history.step();
  if (!history.total_steps()) return row("step", std::to_string(step));
  const std::int64_t total = *history.total_steps();
  const double share = static_cast<double>(step) / static_cast<double>(total);
  const std::string before = row("step", fmt::format("{} of {}  ", step, total));
  std::string after = fmt::format("  {:.1f} %", 100.0 * share);
  if (history.seconds_left())
    after += fmt::format(", {} left", duration_text(*history.seconds_left()));
  const std::size_t used = before.size() + after.size();
  const std::size_t width = columns > used ? std::min<std::size_t>(columns - used, 50) : 0;
  return before + (width >= 5 ? bar(share, width, utf8) : "") + after;
}

std::string loss(const RunHistory& history) {
  const StepMetrics& last = history.steps().back();
  std::string text = last.no_targets
                         ? "none: the last step had no target"
                         : fmt::format("{:.4f}  lr {:.2e}  gradient norm {:.2f}", last.loss,
                                       last.learning_rate, last.gradient_norm);
  const auto skipped = std::count_if(history.steps().begin(), history.steps().end(),
                                     [](const StepMetrics& step) { return step.skipped; });
  if (skipped > 0) text += fmt::format("  {} skipped: gradients not finite", skipped);
  return row("loss", text);
}

std::vector<std::string> step_rows(const RunHistory& history) {
  const StepMetrics& last = history.steps().back();
  const StepAverages recent = average(history.last_steps(kRecentSteps));
  std::vector<std::string> rows = {loss(history)};
  if (!last.losses_of_islands.empty()) {
    rows.push_back(row("islands", losses_text(last.losses_of_islands)));
  }
  rows.push_back(row(
      "speed", fmt::format("{:.0f} {}, {} a step, over the last {} step{}", recent.units_per_second,
                           history.unit().rate(), time_text(recent.step_seconds), recent.steps,
                           recent.steps == 1 ? "" : "s")));
  rows.push_back(row(
      "waiting", fmt::format("{:.1f} % of the step time for data, {:.1f} % for communication",
                             100.0 * recent.wait_data_share, 100.0 * recent.exposed_comm_share)));
  rows.push_back(
      row("memory", fmt::format("{} in the rank that needs most",
                                size_text(static_cast<std::uint64_t>(last.needed_memory())))));
  return rows;
}

// Two rows where one is too short: the share, and where the rest went.
std::vector<std::string> goodput_rows(const RunHistory& history, std::size_t columns) {
  const std::string text = goodput_text(history.goodput());
  if (text.empty()) return {};
  const std::string whole = row("goodput", text);
  const std::size_t end = whole.find("; ");
  if (whole.size() <= columns || end == std::string::npos) return {whole};
  return {whole.substr(0, end), row("", whole.substr(end + 2))};
}

std::vector<std::string> rank_rows(const RankTable& table) {
  const std::size_t slowest = slowest_rank(table);
  const RankTimes& rank = table.ranks[slowest];
  const std::string host = table.nodes[static_cast<std::size_t>(rank.node)].host;
  std::string text = fmt::format("rank {} on {}", slowest, printable(host));
  if (rank.times_peers > 0.0) text += fmt::format(", {:.2f} x its peers", rank.times_peers);
  text += fmt::format(": {} computing", time_text(rank.compute_seconds));
  if (rank.wait_data_seconds > 0.0) {
    text += fmt::format(", {} data", time_text(rank.wait_data_seconds));
  }
  std::vector<std::string> rows = {row("slowest", text)};
  for (std::size_t i = 0; i < std::min(table.stragglers.size(), kMostStragglers); ++i) {
    rows.push_back(row("straggler", printable(table.stragglers[i])));
  }
  return rows;
}

// The latest events, and before them the last failure if they leave it out.
std::vector<RunEvent> latest_events(const RunHistory& history) {
  const std::vector<RunEvent>& events = history.events();
  const auto begin =
      events.end() - static_cast<std::ptrdiff_t>(std::min(events.size(), kLatestEvents));
  std::vector<RunEvent> latest(begin, events.end());
  if (std::ranges::any_of(latest, tells_of_an_end)) return latest;
  const auto failure =
      std::find_if(std::make_reverse_iterator(begin), events.rend(), tells_of_an_end);
  if (failure != events.rend()) latest.insert(latest.begin(), *failure);
  return latest;
}

std::vector<std::string> event_rows(const RunHistory& history) {
  std::vector<std::string> rows;
  for (const RunEvent& event : latest_events(history)) {
    rows.push_back(
        row("event", fmt::format("{} ago, step {}: {}{}{}", duration_text(history.age(event)),
                                 event.step, printable(event.kind),
                                 event.detail.empty() ? "" : ", ", printable(event.detail))));
  }
  return rows;
}

std::string evaluation(const RunHistory& history) {
  if (history.evaluations().empty()) return row("evaluation", "none yet");
  const Evaluation& last = history.evaluations().back();
  const std::string how =
      last.top1 && last.top5
          ? fmt::format("top-1 {:.2f} %, top-5 {:.2f} %", 100.0 * *last.top1, 100.0 * *last.top5)
          : fmt::format("perplexity {:.2f}", std::exp(last.loss));
  return row("evaluation", fmt::format("loss {:.4f}, {}, at step {}", last.loss, how, last.step));
}

std::string checkpoint(const RunHistory& history) {
  if (!history.checkpoint()) return row("checkpoint", "none yet");
  const RunHistory::NewestCheckpoint& newest = *history.checkpoint();
  return row(
      "checkpoint",
      fmt::format("{}, {}, written {} ago",
                  printable(std::filesystem::path(newest.path).filename().string()),
                  size_text(static_cast<std::uint64_t>(newest.bytes)), duration_text(newest.age)));
}

std::string holder(const RunHistory& history) {
  if (!history.lease()) return row("held by", "nobody");
  const Lease& lease = *history.lease();
  std::string who = lease.job.empty() ? std::string("no job") : "job " + printable(lease.job);
  if (lease.restarts > 0) who += fmt::format(", restart {}", lease.restarts);
  return row("held by",
             fmt::format("{}, host {}, process {}", who, printable(lease.host), lease.pid));
}

std::vector<std::string> loss_curve(const RunHistory& history, std::size_t columns,
                                    std::size_t rows, bool utf8) {
  std::vector<double> losses;
  losses.reserve(history.steps().size());
  for (const StepMetrics& step : history.steps()) losses.push_back(step.loss);
  std::vector<std::string> lines = plot(losses, columns, rows, utf8);
  if (lines.empty()) return {};
  const std::string first = std::to_string(history.steps().front().step);
  const std::string last = std::to_string(history.steps().back().step);
  const std::string title = "    loss  " + first;
  lines.push_back(fmt::format("{}{:>{}}", title, last, columns - title.size()));
  return lines;
}

bool begins_character(char c) {
  return !continues_character(c);
}

}  // namespace

std::size_t characters_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string cut(const std::string& text, std::size_t columns) {
  std::size_t characters = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (begins_character(text[at]) && characters++ == columns) return text.substr(0, at);
  }
  return text;
}

std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], characters_of(row[i]));
    }
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      const std::string gap(widths[i] - characters_of(row[i]), ' ');
      line += (i == 0 ? row[i] + gap + " " : gap + row[i] + "  ");
    }
    lines.push_back(line + row.back());
  }
  return lines;
}

std::vector<std::string> top_view(const RunHistory& history, const ViewSize& size, bool utf8) {
  std::vector<std::string> lines = {
      fmt::format("{}: {}", printable(history.folder()), history.state_text()),
      progress(history, size.columns, utf8)};
  const auto add = [&](std::vector<std::string> rows) {
    for (std::string& line : rows) lines.push_back(std::move(line));
  };
  if (!history.steps().empty()) add(step_rows(history));
  add(goodput_rows(history, size.columns));
  if (history.ranks()) add(rank_rows(*history.ranks()));
  lines.push_back(evaluation(history));
  lines.push_back(checkpoint(history));
  lines.push_back(holder(history));
  if (history.lease()) {
    lines.push_back(row("heartbeat", duration_text(*history.heartbeat_age()) + " ago"));
  }
  if (history.metrics_age() && !history.steps().empty()) {
    lines.push_back(row("last step", duration_text(*history.metrics_age()) + " ago"));
  }
  add(event_rows(history));
  // A blank line and the curve's own last line stand around it.
  if (size.rows > lines.size() + 2 && !history.steps().empty()) {
    const std::size_t rows = std::min(size.rows - lines.size() - 2, kMostPlotRows);
    const std::vector<std::string> curve = loss_curve(history, size.columns, rows, utf8);
    if (!curve.empty()) lines.emplace_back();
    lines.insert(lines.end(), curve.begin(), curve.end());
  }
  if (size.whole) return lines;
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) line = cut(line, size.columns);
  return lines;
}

}  // namespace trireme::cli
