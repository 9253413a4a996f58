#include "trireme/report/run_events.h"

#include <fstream>

#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/wall_clock.h"

namespace trireme {
namespace {

// Whether what is appended to the file begins a line.
bool ends_with_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return true;
  file.seekg(-1, std::ios::end);
  return file.get() == '\n';
}

}  // namespace

void EventLog::write(std::int64_t step, std::string_view kind, double seconds,
                     const std::string& detail) {
  Json object = Json::object(
      {{"time", static_cast<std::int64_t>(unix_seconds())}, {"step", step}, {"event", kind}});
  if (seconds > 0.0) object["seconds"] = seconds;
  if (!detail.empty()) object["detail"] = detail;
  // Somebody who was killed may have left half a line: it must not spoil this one.
  const bool begins_line = ends_with_line(path_);
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  file << (begins_line ? "" : "\n") << object.dump() + "\n" << std::flush;
  if (file || failed_) return;
  failed_ = true;
  report_line(fmt::format("{} cannot be written; the run goes on without it", path_));
}

std::vector<RunEvent> events_of_branch(std::vector<RunEvent> events) {
  std::vector<RunEvent> kept;
  for (RunEvent& event : events) {
    if (event.kind == "branch") {
      std::erase_if(kept, [&](const RunEvent& earlier) { return earlier.step > event.step; });
    }
    kept.push_back(std::move(event));
  }
  return kept;
}

std::vector<RunEvent> read_events(const std::string& path) {
  std::vector<RunEvent> events;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    try {
      const Json object = Json::parse(line);
      const Json* seconds = object.find("seconds");
      const Json* detail = object.find("detail");
      events.push_back({object.at("time").integer(), object.at("step").integer(),
                        object.at("event").text(), seconds ? seconds->number() : 0.0,
                        detail ? detail->text() : ""});
    } catch (const JsonError&) {
      // Half written, by a run that was killed.
    }
  }
  return events;
}

}  // namespace trireme
