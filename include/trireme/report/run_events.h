// What happened to a run beside its steps: events.jsonl in the run folder (io/README.md). Unlike
// metrics.jsonl it is never cut back: steps that were done twice were done twice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct RunEvent {
  std::int64_t time = 0;  // seconds since 1970
  std::int64_t step = 0;  // steps done then
  std::string kind;       // "start", "checkpoint", "stop"
  double seconds = 0.0;   // what it took; 0: a moment
  std::string detail;
};

// Written by one process. Events are for who looks on, so a fault to write them ends no run: the
// first is told in one line.
class EventLog {
 public:
  explicit EventLog(std::string path) : path_(std::move(path)) {}
  void write(std::int64_t step, std::string_view kind, double seconds, const std::string& detail);

 private:
  std::string path_;
  bool failed_ = false;
};

// Those that belong to the branch on which the run is now: without what happened on others beyond
// the step at which the run left them.
std::vector<RunEvent> events_of_branch(std::vector<RunEvent> events);

// In the order in which they were written. No file: none. What is no event is left out.
std::vector<RunEvent> read_events(const std::string& path);

}  // namespace trireme
