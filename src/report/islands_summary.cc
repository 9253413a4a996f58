#include "trireme/report/islands_summary.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

constexpr std::size_t kLatestSteps = 50;

// Takes a number from the front of a text; nothing where none stands there.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view words) {
  if (!text.starts_with(words)) return false;
  text.remove_prefix(words.size());
  return true;
}

// How many steps a "discard" tells of: "step 5 is not kept", "steps 5 to 9 are not kept".
std::int64_t steps_not_kept(const RunEvent& event) {
  std::string_view text = event.detail;
  if (take(text, "step ")) return take_number(text) ? 1 : 0;
  if (!take(text, "steps ")) return 0;
  const auto first = take_number(text);
  if (!first || !take(text, " to ")) return 0;
  const auto last = take_number(text);
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  return last && *last >= *first && *last < kMost ? *last - *first + 1 : 0;
}

// The hosts in "n1: 0-3 8, n2: 4-7".
std::vector<std::string> hosts_of(const std::string& places) {
  std::vector<std::string> hosts;
  for (std::size_t at = 0; at < places.size();) {
    const std::size_t end = std::min(places.find(", ", at), places.size());
    const std::string part = places.substr(at, end - at);
    hosts.push_back(part.substr(0, part.rfind(": ")));
    at = end + 2;
  }
  return hosts;
}

bool is_end(const RunEvent& event) {
  return event.kind == "stop" || event.kind == "finish";
}

// What the records say of the deliveries, by member and base.
struct Noted {
  std::int64_t steps = 0, late = 0;
  bool counted = false;
  std::string why;
};
using AllNoted = std::map<std::pair<std::string, std::int64_t>, Noted>;

AllNoted noted_in(const std::vector<OuterRecord>& records) {
  AllNoted noted;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const std::int64_t now = records[i - 1].updates;
    for (const Settled& one : records[i].settled) {
      const auto base = static_cast<std::size_t>(one.delivery.base);
      const std::int64_t late = base < i ? now - records[base].updates : 0;
      noted[{one.delivery.member.name, one.delivery.base}] = {one.delivery.steps, late,
                                                              one.weight > 0, one.why};
    }
  }
  return noted;
}

class OneMember {
 public:
  OneMember(const IslandsFacts& all, const MemberFacts& facts, const AllNoted& noted)
      : all_(all), facts_(facts), noted_(noted) {
    result_.name = facts.name;
    read_events();
    read_steps();
    end_spans();
    judge_state();
  }
  MemberSummary result() && { return std::move(result_); }

 private:
  void read_events() {
    std::set<double> discarded;
    for (const RunEvent& event : facts_.events) {
      std::string_view detail = event.detail;
      if (event.kind == "discard") {
        // A start that was killed before it removed the steps tells of them again.
        const bool again = event.until > 0 && !discarded.insert(event.until).second;
        if (!again) result_.begun += steps_not_kept(event);
      } else if (event.kind == "start") {
        begin_span(event);
      } else if (event.kind == "outer") {
        if (event.seconds > 0) result_.waited.push_back({event.time - event.seconds, event.time});
        result_.outer = take_number(detail);
        if (result_.outer && detail == ", led")
          result_.leads.push_back({event.time, *result_.outer});
      } else if (event.kind == "delivered") {
        read_delivery(event);
      }
      if (event.kind == "start" || event.kind == "outer" || event.kind == "delivered") {
        last_ = &event;
      }
      if (!result_.there.empty()) {
        MemberSpan& span = result_.there.back();
        // A start that is about to repeat steps says so before it tells of itself.
        const bool of_next = event.kind == "discard" || event.kind == "branch";
        if (!of_next && !tells_of_an_end(event)) span.end = std::max(span.end, event.time);
        finished_ = event.kind == "finish";
      }
    }
  }

  void begin_span(const RunEvent& event) {
    result_.there.push_back({event.time - event.seconds, event.time});
    std::vector<std::string> hosts = hosts_of(event.places);
    if (hosts.empty() && !facts_.host.empty()) hosts.push_back(facts_.host);
    nodes_.push_back(std::max<std::size_t>(hosts.size(), 1));
    result_.nodes.clear();
    for (const std::string& host : hosts) {
      result_.nodes += (result_.nodes.empty() ? "" : ", ") + host;
    }
  }

  // "N, S steps"
  void read_delivery(const RunEvent& event) {
    std::string_view detail = event.detail;
    const auto base = take_number(detail);
    if (!base || !take(detail, ", ")) return;
    MemberDelivery delivery{
        .time = event.time, .base = *base, .steps = take_number(detail).value_or(0)};
    if (const auto found = noted_.find({facts_.name, *base}); found != noted_.end()) {
      delivery.settled = true;
      delivery.late = found->second.late;
      delivery.counted = found->second.counted;
      delivery.why = found->second.why;
    }
    result_.deliveries.push_back(std::move(delivery));
  }

  void read_steps() {
    const std::vector<double>& times = facts_.step_times;
    result_.begun += std::ssize(times);
    const double since = last_ != nullptr ? last_->time : 0;
    if (facts_.alive && last_ != nullptr && last_->kind == "outer") {
      result_.under_way += std::ranges::count_if(times, [&](double time) { return time > since; });
    }
    const std::size_t count = std::min(times.size(), kLatestSteps);
    const auto latest = times.end() - static_cast<std::ptrdiff_t>(count);
    // Waits lie between steps, so the time of each leg's steps alone counts.
    double seconds = 0;
    std::int64_t steps = 0;
    for (auto at = latest; count > 1 && at + 1 != times.end(); ++at) {
      const bool waited = std::ranges::any_of(facts_.events, [&](const RunEvent& event) {
        return (event.kind == "outer" || event.kind == "start") && event.time > *at &&
               event.time <= *(at + 1);
      });
      if (waited || *(at + 1) <= *at) continue;
      seconds += *(at + 1) - *at;
      ++steps;
    }
    if (seconds > 0) result_.steps_per_second = static_cast<double>(steps) / seconds;
    for (const auto& [key, noted] : noted_) {
      if (key.first == facts_.name && noted.counted) result_.counted += noted.steps;
    }
    for (const MemberDelivery& delivery : result_.deliveries) {
      if (!delivery.settled && is_open(delivery.base)) result_.under_way += delivery.steps;
    }
  }

  bool is_open(std::int64_t base) const {
    if (all_.records.empty()) return false;
    const OuterMember* const member = all_.records.back().find(facts_.name);
    return member != nullptr && member->deal_of(base) != nullptr;
  }

  // A span ends with the last that its start has recorded.
  void end_spans() {
    for (std::size_t i = 0; i < result_.there.size(); ++i) {
      MemberSpan& span = result_.there[i];
      const bool last = i + 1 == result_.there.size();
      const double next = last ? all_.now : result_.there[i + 1].begin;
      for (const double time : facts_.step_times) {
        if (time > span.end && time < next) span.end = time;
      }
      if (last && !is_ended()) span.end = std::max(span.end, facts_.last_sign);
      span.end = std::max(span.begin, std::min(span.end, std::max(next, span.begin)));
      result_.node_seconds += static_cast<double>(nodes_[i]) * (span.end - span.begin);
    }
    const bool waits = facts_.alive && last_ != nullptr && last_->kind != "outer";
    if (waits) result_.waited.push_back({last_->time, std::max(last_->time, all_.now)});
  }

  // A job may come back to a run that is done, and has nothing to note then.
  bool found_nothing_to_do() const {
    return all_.done && facts_.left && last_ != nullptr && last_->kind == "start";
  }

  bool is_ended() const {
    return !facts_.alive && !facts_.events.empty() &&
           (is_end(facts_.events.back()) || tells_of_an_end(facts_.events.back()));
  }

  void judge_state() {
    using enum MemberState;
    MemberState& state = result_.state;
    if (facts_.alive) {
      state = last_ == nullptr || last_->kind == "start" ? kJoining
              : last_->kind == "delivered"               ? kWaiting
                                                         : kWorking;
    } else if (finished_ || found_nothing_to_do()) {
      state = kFinished;
    } else {
      state = facts_.left || is_ended() ? kLeft : kDead;
    }
    result_.state_text = name_of(state);
    const bool says_more = state == kDead || state == kLeft;
    if (says_more && !facts_.state.empty()) {
      result_.state_text += ": " + printable(facts_.state);
    } else if (state == kWaiting && !result_.deliveries.empty()) {
      result_.state_text += fmt::format(" for outer state {}", result_.deliveries.back().base + 1);
    }
  }

  const IslandsFacts& all_;
  const MemberFacts& facts_;
  const AllNoted& noted_;
  const RunEvent* last_ = nullptr;  // the last that tells where it stands
  bool finished_ = false;
  std::vector<std::size_t> nodes_;  // of each span
  MemberSummary result_;
};

}  // namespace

std::string_view name_of(MemberState state) {
  switch (state) {
    case MemberState::kJoining:
      return "joining";
    case MemberState::kWorking:
      return "working";
    case MemberState::kWaiting:
      return "waiting";
    case MemberState::kDead:
      return "dead";
    case MemberState::kLeft:
      return "left";
    case MemberState::kFinished:
      return "finished";
  }
  throw InternalError("a state of a member without a name");
}

double IslandsSummary::goodput() const {
  if (begun == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(counted) / static_cast<double>(begun);
}

IslandsSummary summary_of(const IslandsFacts& facts) {
  IslandsSummary all;
  if (!facts.records.empty()) {
    const OuterRecord& newest = facts.records.back();
    all.outer = newest.number;
    all.updates = newest.updates;
    all.leader = newest.leader.name;
  }
  const AllNoted noted = noted_in(facts.records);
  for (const MemberFacts& member : facts.members) {
    all.members.push_back(OneMember(facts, member, noted).result());
    const MemberSummary& one = all.members.back();
    all.begun += one.begun;
    all.counted += one.counted;
    all.under_way += one.under_way;
    all.node_seconds += one.node_seconds;
    for (const MemberSpan& span : one.there) {
      all.begin = all.begin > 0 ? std::min(all.begin, span.begin) : span.begin;
      all.end = std::max(all.end, span.end);
    }
  }
  return all;
}

std::string goodput_text(const IslandsSummary& summary) {
  if (summary.begun == 0) return "";
  std::string text = fmt::format("{:.1f} %: {} of {} inner steps that were begun count",
                                 100 * summary.goodput(), summary.counted, summary.begun);
  if (summary.under_way > 0) text += fmt::format(", {} are under way", summary.under_way);
  return text;
}

}  // namespace trireme
