// Where the whole wall time of a run went, from the submission of its first job until now: not only
// its steps, but also queues, starts, failures and steps that were done twice. src/cli/RUNS.md
// says what each use of time means.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/report/run_events.h"
#include "trireme/report/step_metrics.h"

namespace trireme {

enum class TimeUse {
  kComputation,    // this and the next two: in steps whose result is kept
  kCommunication,  // exposed
  kData,
  kEvaluation,
  kCheckpoint,
  kMembers,   // waiting for other members of the run, and delivering to them
  kNotKept,   // steps that were repeated later, or that a new branch has superseded
  kStarting,  // from a job's start until its first step begins
  kQueue,
  kFailure,  // from the last record before a failure until the end of that start
  kBetween,  // nobody had started the run, though its job or a failure asked for that
  kOther,    // between two steps, the program's end, and what no file records
};
inline constexpr std::size_t kTimeUses = 12;
std::string_view name_of(TimeUse use);  // "computation", ...

struct Goodput {
  double whole = 0.0;                       // seconds; 0: no start is recorded
  std::array<double, kTimeUses> seconds{};  // by TimeUse; never negative; their sum is `whole`
  // False if a job of the run did not record how long it was queued. Its time in the queue is then
  // part of kBetween, or before the beginning of `whole`.
  bool queue_known = true;

  double of(TimeUse use) const { return seconds[static_cast<std::size_t>(use)]; }
  double kept() const {
    return of(TimeUse::kComputation) + of(TimeUse::kCommunication) + of(TimeUse::kData);
  }
  double share() const { return whole > 0.0 ? kept() / whole : 0.0; }  // kept() / whole
};

// What the files of a run folder record.
struct RunRecords {
  std::span<const StepMetrics> steps;  // sorted by step
  std::span<const Evaluation> evaluations;
  std::span<const RunEvent> events;  // in the order in which they were written
  // When the run's process was last known to be alive, in seconds since 1970. Empty: it has ended.
  std::optional<double> alive = {};
  bool running = false;  // false while `alive` is set: the process is gone, by a failure
};

// The whole wall time ends at `alive`, or else with the last record. What passes between a start
// that has ended on purpose and the next one outside of a job is no part of it. No duration is
// negative, even if a clock steps back: measured durations count in full, and the whole time is at
// least their sum.
Goodput goodput_of(const RunRecords& records);

// "83.2 % of 2 h 13 min; queue 15 min 02 s, starting 6 min 10 s": the share of kept(), then where
// the rest went, the longest first. Empty if no start is recorded.
std::string goodput_text(const Goodput& goodput);

// Returns the event that records the steps and evaluations in metrics.jsonl after `after_step`,
// which a new start is about to remove. Returns nullopt if there are none, or if events.jsonl
// records them already.
std::optional<RunEvent> discarded_after(const std::string& folder, std::int64_t after_step);

}  // namespace trireme
