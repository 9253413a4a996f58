#include "trireme/report/islands_page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/report/html_page.h"
#include "trireme/report/svg_plot.h"

#include "report/page_links.h"
#include "report/step_marks.h"

namespace trireme {
namespace {

constexpr std::size_t kMarksOfMember = 200;  // of a kind in a lane, and of a line
constexpr std::size_t kMostOuter = 50;       // in the table
constexpr int kLineColours = 6;

// The unit in which a time axis counts.
struct TimeUnit {
  const char* name;
  double seconds;
};

TimeUnit unit_of(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  if (seconds < 3 * kMinute) return {"seconds", 1};
  if (seconds < 3 * kHour) return {"minutes", kMinute};
  if (seconds < 3 * kDay) return {"hours", kHour};
  return {"days", kDay};
}

// Every so many of a long list, so that a page stays small.
template <class Item>
std::vector<Item> thinned(const std::vector<Item>& items) {
  const std::size_t stride = (items.size() + kMarksOfMember - 1) / kMarksOfMember;
  std::vector<Item> kept;
  for (std::size_t i = 0; i < items.size(); i += stride) kept.push_back(items[i]);
  return kept;
}

std::string at_text(double time) {
  return utc_text(static_cast<std::int64_t>(time));
}

enum LaneColour { kThere = 0, kLate = 1, kLed = 2, kNotCounted = 3, kWaits = 4 };

Lane lane_of(const MemberSummary& member, double begin, double unit) {
  const auto at = [&](double time) { return (time - begin) / unit; };
  Lane lane{.label = member.name, .spans = {}, .marks = {}};
  for (const MemberSpan& span : member.there) {
    lane.spans.push_back({at(span.begin), at(span.end), kThere,
                          fmt::format("{} ran for {}, from {}", member.name,
                                      duration_text(span.end - span.begin), at_text(span.begin))});
  }
  for (const MemberSpan& span : thinned(member.waited)) {
    lane.spans.push_back(
        {at(span.begin), at(span.end), kWaits,
         fmt::format("{} waited for {}", member.name, time_text(span.end - span.begin))});
  }
  std::vector<MemberDelivery> late, not_counted;
  for (const MemberDelivery& one : member.deliveries) {
    if (one.settled && !one.counted) not_counted.push_back(one);
    if (one.counted && one.late > 0) late.push_back(one);
  }
  for (const MemberDelivery& one : thinned(late)) {
    lane.marks.push_back({at(one.time), kLate,
                          fmt::format("{} from outer state {}: {} late", counted(one.steps, "step"),
                                      one.base, counted(one.late, "outer step"))});
  }
  for (const MemberDelivery& one : thinned(not_counted)) {
    lane.marks.push_back({at(one.time), kNotCounted,
                          fmt::format("{} from outer state {} do not count: {}",
                                      counted(one.steps, "step"), one.base, one.why)});
  }
  for (const MemberLead& lead : thinned(member.leads)) {
    lane.marks.push_back(
        {at(lead.time), kLed, fmt::format("{} made outer state {}", member.name, lead.outer)});
  }
  return lane;
}

std::string lanes_of(const IslandsSummary& summary) {
  const TimeUnit unit = unit_of(summary.end - summary.begin);
  LanePlot plot{.title = "Members over time",
                .x_label = fmt::format("{} since {} UTC", unit.name, at_text(summary.begin)),
                .legend = {{"at work", kThere, false},
                           {"waits", kWaits, false},
                           {"made an outer state", kLed, true},
                           {"late", kLate, true},
                           {"not counted", kNotCounted, true}},
                .lanes = {},
                .most = (summary.end - summary.begin) / unit.seconds};
  for (const MemberSummary& member : summary.members) {
    plot.lanes.push_back(lane_of(member, summary.begin, unit.seconds));
  }
  return svg_of(plot);
}

Plot losses_of(const IslandsHistory& run) {
  Plot plot{.title = "Training loss", .x_label = "inner step", .y_label = ""};
  int number = 0;
  for (const MemberSummary& member : run.summary().members) {
    const RunHistory* history = run.history(member.name);
    if (history == nullptr || history->steps().empty()) continue;
    plot.y_label = fmt::format("nats a {}", history->unit().one);
    PlotLine line{.name = member.name,
                  .marks = marks_of(
                      history->steps(), "", [](const StepMetrics& m) { return m.loss; },
                      kMarksOfMember, member.name + ", ")};
    line.colour = number % kLineColours;
    line.dashed = number / kLineColours % 2 == 1;
    line.dots = false;
    ++number;
    if (!line.marks.empty()) plot.lines.push_back(std::move(line));
  }
  return plot;
}

std::string hours_text(double seconds) {
  return fmt::format("{:.2f}", seconds / 3600);
}

std::string members_of(const IslandsHistory& run, const std::string& folder) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> links;
  for (const MemberSummary& member : run.summary().members) {
    const RunHistory* history = run.history(member.name);
    links.push_back(history == nullptr ? "" : link_to_report(history->folder(), folder));
    const auto late = std::ranges::count_if(
        member.deliveries, [](const MemberDelivery& one) { return one.counted && one.late > 0; });
    const auto lost = std::ranges::count_if(
        member.deliveries, [](const MemberDelivery& one) { return one.settled && !one.counted; });
    rows.push_back({member.name, member.outer ? std::to_string(*member.outer) : "",
                    fmt::format("{} of {}", member.counted, member.begun),
                    member.steps_per_second > 0 ? short_number(member.steps_per_second) : "",
                    std::to_string(member.deliveries.size()), std::to_string(late),
                    std::to_string(lost), std::to_string(member.leads.size()),
                    std::to_string(member.there.size()), hours_text(member.node_seconds),
                    member.nodes, member.state_text});
  }
  return "<h2>Members</h2>\n" +
         html_table({"member", "outer state", "steps that count", "steps/s", "deliveries", "late",
                     "not counted", "made outer states", "starts", "node-hours", "nodes", "state"},
                    rows, links);
}

// Which members an outer step counted, who came late, and what it did not count.
std::vector<std::string> row_of(const std::vector<OuterRecord>& records, std::size_t i) {
  std::string counted_ones, others;
  for (const Settled& one : records[i].settled) {
    const std::string& name = one.delivery.member.name;
    const auto base = static_cast<std::size_t>(one.delivery.base);
    if (!(one.weight > 0)) {
      others += fmt::format("{}{}: {}", others.empty() ? "" : "; ", name, one.why);
      continue;
    }
    const std::int64_t late =
        i > 0 && base < i ? records[i - 1].updates - records[base].updates : 0;
    counted_ones += fmt::format("{}{}{}", counted_ones.empty() ? "" : ", ", name,
                                late > 0 ? fmt::format(" ({} late)", late) : "");
  }
  return {std::to_string(records[i].number), records[i].leader.name,
          std::to_string(records[i].members.size()), counted_ones, others};
}

std::string outer_steps_of(const std::vector<OuterRecord>& records) {
  if (records.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  const std::size_t first = records.size() > kMostOuter ? records.size() - kMostOuter : 0;
  for (std::size_t i = records.size(); i-- > first;) rows.push_back(row_of(records, i));
  return fmt::format("<h2>Outer states{}</h2>\n",
                     first > 0 ? fmt::format(", the last {}", kMostOuter) : "") +
         html_table(
             {"outer state", "made by", "members then", "counts the work of", "and not that of"},
             rows);
}

}  // namespace

std::string page_of_islands(const IslandsHistory& run, const std::string& page_folder) {
  const IslandsSummary& summary = run.summary();
  const bool goes_on = std::ranges::any_of(summary.members, [](const MemberSummary& one) {
    using enum MemberState;
    return one.state == kJoining || one.state == kWorking || one.state == kWaiting;
  });
  std::string body = fmt::format("<h1>Run of several jobs</h1>\n<p class=\"state\">{}: {}</p>\n",
                                 escape_html(run.folder()), escape_html(run.state_text()));
  if (!run.fault().empty()) {
    body += fmt::format("<p class=\"remark\">{}</p>\n", escape_html(run.fault()));
  }
  Facts facts;
  if (const std::string goodput = goodput_text(summary); !goodput.empty()) {
    facts.emplace_back("goodput", goodput);
  }
  facts.emplace_back("node-hours", hours_text(summary.node_seconds));
  if (summary.end > summary.begin) {
    facts.emplace_back("since the first start", duration_text(summary.end - summary.begin));
  }
  body += html_facts(facts);
  if (summary.end > summary.begin) body += "<figure>" + lanes_of(summary) + "</figure>\n";
  const Plot losses = losses_of(run);
  if (losses.lines.empty()) {
    body += "<p class=\"remark\">No step is done yet.</p>\n";
  } else {
    body += "<figure>" + svg_of(losses) + "</figure>\n";
  }
  return html_page(fmt::format("Run {}", run.folder()), goes_on,
                   body + members_of(run, page_folder) + outer_steps_of(run.records()));
}

std::string picture_of_islands(const IslandsHistory& run) {
  const Plot losses = losses_of(run);
  if (losses.lines.empty()) {
    throw RunFolderError(
        fmt::format("{}: no step is done yet: there is nothing to draw", run.folder()));
  }
  return standalone_svg(svg_of(losses));
}

}  // namespace trireme
