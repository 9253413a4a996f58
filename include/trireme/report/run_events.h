// What happened to a run besides its steps: events.jsonl in the run folder (io/RUN_FOLDER.md).
// Unlike metrics.jsonl it is never cut back, so it also tells about steps that were done twice.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// When Slurm was given a job and when it started it, in seconds since 1970, as far as known.
struct JobTimes {
  std::string job;  // as Slurm names it; empty: the program was not started in a job
  std::optional<double> submitted = {}, started = {};
};

// Returns the job of this process, from SLURM_JOB_ID and from what the job templates export.
JobTimes job_times_here();

struct RunEvent {
  double time = 0.0;      // seconds since 1970
  std::int64_t step = 0;  // steps done at that time
  std::string kind = {};  // "start", "checkpoint", "stop", ...
  double seconds = 0.0;   // how long it took; 0: an instant
  std::string detail = {};
  double until = 0.0;  // "discard": when the last of these steps ended; 0: not known
  JobTimes job = {};   // for a "start" or a "failure"
  // For a "start": which places of the grid are on which node, as describe_places writes it.
  std::string places = {};
};

// Whether an event records that a start of the run has ended other than on purpose.
bool tells_of_an_end(const RunEvent& event);

// Only one process of the run uses it. Events only inform the user, so a failure to write them does
// not end the run: the first failure is reported in one line.
class EventLog {
 public:
  explicit EventLog(std::string path) : path_(std::move(path)) {}
  // Writes an event with the present time; `event.time` is ignored.
  void write(const RunEvent& event);
  void write(std::int64_t step, std::string_view kind, double seconds, const std::string& detail);

 private:
  std::string path_;
  bool failed_ = false;
};

// Returns the events of the branch that the run is on now. Leaves out events of other branches at
// steps after the one where the run left them.
std::vector<RunEvent> events_of_branch(std::vector<RunEvent> events);

// Returns how long the last checkpoint took; nullopt where none was written.
std::optional<double> last_checkpoint_seconds(std::span<const RunEvent> events);

// Returns the events in the order in which they were written; none if there is no file. Leaves out
// lines that are not events.
std::vector<RunEvent> read_events(const std::string& path);

}  // namespace trireme
