#include "trireme/report/goodput.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

// A start of the program, and what was recorded after its end, before the next start.
struct Start {
  std::int64_t step = 0;  // steps done before it
  double begin = 0.0;     // of the process
  double last = 0.0;      // its last record
  bool on_purpose = false;
  bool last_unknown = false;  // an earlier version wrote its steps without their times
  JobTimes job = {};
  std::vector<RunEvent> after = {};  // failures and requeues that ended it
};

// Whether two events say that the same steps were removed. Steps are recognised by the time of the
// last one or, if an earlier version did them without times, by how long they took.
bool same_steps(const RunEvent& a, const RunEvent& b) {
  if (a.kind != "discard" || b.kind != "discard" || a.until != b.until) return false;
  return a.until > 0.0 || (a.step == b.step && std::abs(a.seconds - b.seconds) < 1e-6);
}

bool same_start_of_job(const JobTimes& a, const JobTimes& b) {
  return a.job == b.job && a.started == b.started;
}

class Accounts {
 public:
  explicit Accounts(const RunRecords& records) {
    read_events(records.events);
    if (starts_.empty()) {
      result_ = {};  // without a recorded start the whole time is not known
      return;
    }
    read_steps(records);
    before_first_start();
    for (std::size_t i = 0; i + 1 < starts_.size(); ++i) between(starts_[i], starts_[i + 1]);
    const double end = after_last_start(records);
    settle(std::max(0.0, end - begin_));
  }

  const Goodput& result() const { return result_; }

 private:
  void add(TimeUse use, double seconds) {
    constexpr double kMost = 1e12;  // seconds; a file may hold any number
    result_.seconds[static_cast<std::size_t>(use)] += std::clamp(seconds, 0.0, kMost);
  }

  void read_events(std::span<const RunEvent> events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      const RunEvent& event = events[i];
      if (event.kind == "start") {
        starts_.push_back({.step = event.step,
                           .begin = event.time - event.seconds,
                           .last = event.time,
                           .job = event.job});
        add(TimeUse::kStarting, event.seconds);
      } else if (event.kind == "discard") {
        if (!told_again(events.subspan(i + 1), event)) add(TimeUse::kNotKept, event.seconds);
        if (starts_.empty()) continue;
        starts_.back().last = std::max(starts_.back().last, event.until);
        if (event.until == 0.0) starts_.back().last_unknown = true;
      } else if (event.kind != "branch" && !starts_.empty()) {
        take(starts_.back(), event);
      }
    }
  }

  // Whether a later event tells of the same steps. That happens if a start was killed before it
  // removed them.
  static bool told_again(std::span<const RunEvent> later, const RunEvent& discard) {
    return std::any_of(later.begin(), later.end(),
                       [&](const RunEvent& e) { return same_steps(e, discard); });
  }

  void take(Start& start, const RunEvent& event) {
    if (tells_of_an_end(event)) {
      start.after.push_back(event);
      return;
    }
    start.after.clear();  // the start was still alive
    start.last = std::max(start.last, event.time);
    start.on_purpose = event.kind == "stop" || event.kind == "finish";
    if (event.kind == "checkpoint") add(TimeUse::kCheckpoint, event.seconds);
    if (event.kind == "outer" || event.kind == "waited" || event.kind == "delivered") {
      add(TimeUse::kMembers, event.seconds);
    }
  }

  void read_steps(const RunRecords& records) {
    for (const StepMetrics& step : records.steps) {
      const double communication = std::max(0.0, step.exposed_comm_seconds);
      const double data = std::max(0.0, step.wait_data_seconds);
      const double all = std::max(0.0, step.step_seconds);
      // One rank may be the slowest in communication and another in reading, so that the sum
      // exceeds the step.
      const double scale = communication + data > all ? all / (communication + data) : 1.0;
      add(TimeUse::kCommunication, scale * communication);
      add(TimeUse::kData, scale * data);
      add(TimeUse::kComputation, all - scale * (communication + data));
    }
    for (const Evaluation& evaluation : records.evaluations) {
      add(TimeUse::kEvaluation, evaluation.seconds);
    }
    give_to_starts(records.steps);
    give_to_starts(records.evaluations);
  }

  // Each start removes the recorded steps that it will repeat. So a step that is still recorded was
  // done by the last start that began before this step.
  template <class Record>
  void give_to_starts(std::span<const Record> records) {
    auto start = starts_.rbegin();
    for (auto record = records.rbegin(); record != records.rend(); ++record) {
      while (start != starts_.rend() && start->step >= record->step) ++start;
      if (start == starts_.rend()) return;
      start->last = std::max(start->last, record->time);
      start->last_unknown = start->last_unknown || record->time <= 0.0;
    }
  }

  void before_first_start() {
    const Start& first = starts_.front();
    begin_ = first.begin;
    if (first.job.started && *first.job.started < begin_) {
      add(TimeUse::kStarting, begin_ - *first.job.started);
      begin_ = *first.job.started;
    }
    if (first.job.started && first.job.submitted) {
      add(TimeUse::kQueue, begin_ - *first.job.submitted);
      begin_ = std::min(begin_, *first.job.submitted);
    }
    note_queue(first.job);
  }

  void note_queue(const JobTimes& job) {
    if (!job.job.empty() && !(job.submitted && job.started)) result_.queue_known = false;
  }

  // Adds the time in [from, to] that a job was queued, and returns how long that was.
  double queued(double from, double to, const JobTimes& job) {
    if (!job.submitted || !job.started) return 0.0;
    const double seconds =
        std::max(0.0, std::min(to, *job.started) - std::max(from, *job.submitted));
    add(TimeUse::kQueue, seconds);
    return seconds;
  }

  // Returns the latest time at which a start may have ended that did not end on purpose.
  // start.after holds what was recorded since then.
  static double end_of_failure(const Start& start, const Start& next) {
    if (!start.after.empty()) return start.after.front().time;
    // What the next job spent in the queue is no failure.
    if (next.job.submitted && !same_start_of_job(start.job, next.job)) {
      return std::min(next.begin, std::max(start.last, *next.job.submitted));
    }
    return next.begin;
  }

  // Adds the failure of a start at `end`, unless the start ended on purpose, and the failures that
  // the job script recorded after it. Returns the time of the last of these events.
  double failures(const Start& start, double end) {
    double at = start.last;
    if (!start.on_purpose) {
      if (!start.last_unknown) add(TimeUse::kFailure, end - at);
      at = std::max(at, end);
    }
    for (const RunEvent& event : start.after) {
      if (event.time <= at) continue;
      if (event.kind == "failure") {  // of a start without any record
        add(TimeUse::kFailure, event.time - at - queued(at, event.time, event.job));
      }
      at = event.time;
    }
    return at;
  }

  void between(const Start& start, const Start& next) {
    const double at = failures(start, end_of_failure(start, next));
    if (!same_start_of_job(start.job, next.job)) note_queue(next.job);
    if (at >= next.begin) return;
    const double waited = queued(at, next.begin, next.job);
    const double started =
        std::clamp(next.job.started ? std::max(at, *next.job.started) : next.begin, at, next.begin);
    add(TimeUse::kStarting, next.begin - started);
    const double idle = started - at - waited;
    // Nobody wanted it to run: a person goes on later with what had ended.
    const bool by_hand = next.job.job.empty() && start.on_purpose && start.after.empty();
    if (by_hand) {
      idle_ += std::max(0.0, idle);
    } else {
      add(TimeUse::kBetween, idle);
    }
  }

  // Adds the failures after the last start. Returns when the whole time ends.
  double after_last_start(const RunRecords& records) {
    const Start& last = starts_.back();
    const double alive = std::max(last.last, records.alive.value_or(0.0));
    if (records.running) {
      // The last start has ended, and the next one has not recorded its begin yet.
      if (last.on_purpose || !last.after.empty()) {
        const double at = failures(last, last.after.empty() ? last.last : last.after.front().time);
        add(TimeUse::kBetween, alive - at);
      }
      return alive;
    }
    return failures(last, last.after.empty() ? alive : last.after.front().time);
  }

  void settle(double wall) {
    const double known = std::accumulate(result_.seconds.begin(), result_.seconds.end(), 0.0);
    result_.whole = std::max(wall - idle_, known);
    add(TimeUse::kOther, result_.whole - known);
  }

  std::vector<Start> starts_;
  double begin_ = 0.0;
  double idle_ = 0.0;  // seconds that count for nothing
  Goodput result_;
};

}  // namespace

std::string_view name_of(TimeUse use) {
  switch (use) {
    case TimeUse::kComputation:
      return "computation";
    case TimeUse::kCommunication:
      return "exposed communication";
    case TimeUse::kData:
      return "data";
    case TimeUse::kEvaluation:
      return "evaluation";
    case TimeUse::kCheckpoint:
      return "checkpoints";
    case TimeUse::kMembers:
      return "other members";
    case TimeUse::kNotKept:
      return "steps not kept";
    case TimeUse::kStarting:
      return "starting";
    case TimeUse::kQueue:
      return "queue";
    case TimeUse::kFailure:
      return "failures";
    case TimeUse::kBetween:
      return "between starts";
    case TimeUse::kOther:
      return "other";
  }
  throw InternalError("a use of time without a name");
}

Goodput goodput_of(const RunRecords& records) {
  return Accounts(records).result();
}

std::string goodput_text(const Goodput& goodput) {
  if (!(goodput.whole > 0.0)) return "";
  const auto time = goodput.whole < 60.0 ? time_text : duration_text;
  std::string text = fmt::format("{:.1f} % of {}", 100.0 * goodput.share(), time(goodput.whole));
  std::vector<TimeUse> uses;
  for (std::size_t i = static_cast<std::size_t>(TimeUse::kEvaluation); i < kTimeUses; ++i) {
    constexpr double kLeastShare = 5e-4;  // rounds to 0.1 %
    if (goodput.seconds[i] >= kLeastShare * goodput.whole) uses.push_back(static_cast<TimeUse>(i));
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [&](TimeUse a, TimeUse b) { return goodput.of(a) > goodput.of(b); });
  for (std::size_t i = 0; i < uses.size(); ++i) {
    text +=
        fmt::format("{}{} {}", i == 0 ? "; " : ", ", name_of(uses[i]), time(goodput.of(uses[i])));
  }
  if (!goodput.queue_known) text += "; the time in the queue is not known";
  return text;
}

std::optional<RunEvent> discarded_after(const std::string& folder, std::int64_t after_step) {
  RunEvent event;
  event.kind = "discard";
  event.step = after_step;
  std::int64_t first = 0, last = 0;
  auto file = FileReader::open_if_there(folder + "/metrics.jsonl", ExitStatus::kRunFolder);
  for (std::string line; file && file->line(line);) {
    const Json object = Json::parse_or_null(line);
    const Json* step = object.find("step");
    if (!step || !step->is_integer() || step->integer() <= after_step) continue;
    first = first == 0 ? step->integer() : std::min(first, step->integer());
    last = std::max(last, step->integer());
    for (const char* key : {"step_s", "eval_s"}) {
      const Json* seconds = object.find(key);
      if (seconds && seconds->is_number())
        event.seconds += std::clamp(seconds->number(), 0.0, 1e12);
    }
    const Json* time = object.find("time");
    if (time && time->is_number()) event.until = std::max(event.until, time->number());
  }
  if (last == 0) return {};
  for (const RunEvent& earlier : read_events(folder + "/events.jsonl")) {
    if (same_steps(earlier, event) && earlier.step == after_step) return {};
  }
  event.detail = first == last ? fmt::format("step {} is not kept", first)
                               : fmt::format("steps {} to {} are not kept", first, last);
  return event;
}

}  // namespace trireme
