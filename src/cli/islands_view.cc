#include "cli/islands_view.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/printable.h"
#include "trireme/base/text.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kWidestNodes = 24;

bool at_work(const MemberSummary& member) {
  using enum MemberState;
  return member.state == kJoining || member.state == kWorking || member.state == kWaiting;
}

std::vector<std::string> cells_of(const MemberSummary& member, const IslandsHistory& run) {
  const auto last_settled = std::ranges::find_if(
      member.deliveries.rbegin(), member.deliveries.rend(), &MemberDelivery::settled);
  std::string delivered = "-", late = "-", led = "-";
  if (!member.deliveries.empty()) {
    const MemberDelivery& last = member.deliveries.back();
    delivered =
        fmt::format("{}, {} ago", last.base, duration_text(std::max(0.0, run.now() - last.time)));
  }
  if (last_settled != member.deliveries.rend()) {
    late = last_settled->counted ? std::to_string(last_settled->late) : "not counted";
  }
  if (!member.leads.empty()) led = std::to_string(member.leads.back().outer);
  return {printable(member.name),
          member.outer ? std::to_string(*member.outer) : "-",
          fmt::format("{}/{}", member.counted, member.begun),
          member.steps_per_second > 0 ? short_number(member.steps_per_second) : "-",
          delivered,
          late,
          led,
          member.nodes.empty() ? "-" : shown(member.nodes, kWidestNodes),
          printable(member.state_text)};
}

}  // namespace

std::vector<std::string> islands_view(const IslandsHistory& run, const ViewSize& size) {
  const IslandsSummary& summary = run.summary();
  std::vector<const MemberSummary*> members;
  for (const MemberSummary& member : summary.members) members.push_back(&member);
  constexpr std::size_t kLinesBeside = 5;
  const std::size_t room = size.rows > kLinesBeside ? size.rows - kLinesBeside : 1;
  const std::size_t left_out = members.size() > room ? members.size() - room : 0;
  if (left_out > 0) {
    std::ranges::stable_partition(members, [](const MemberSummary* one) { return at_work(*one); });
    members.resize(room);
  }
  std::vector<std::vector<std::string>> rows = {
      {"member", "outer", "counted", "steps/s", "delivered", "late", "led", "nodes", "state"}};
  for (const MemberSummary* member : members) rows.push_back(cells_of(*member, run));
  std::vector<std::string> lines = {
      fmt::format("{}: {}", printable(run.folder()), printable(run.state_text()))};
  for (std::string& line : aligned(rows)) lines.push_back(std::move(line));
  if (left_out > 0) lines.push_back(fmt::format("and {} more", left_out));
  if (const std::string goodput = goodput_text(summary); !goodput.empty()) {
    lines.push_back(
        fmt::format("goodput {}; {:.2f} node-hours", goodput, summary.node_seconds / 3600));
  }
  if (!run.fault().empty()) lines.push_back(printable(run.fault()));
  if (size.whole) return lines;
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) line = cut(line, size.columns);
  return lines;
}

}  // namespace trireme::cli
