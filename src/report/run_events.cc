#include "trireme/report/run_events.h"

#include <fstream>

#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/wall_clock.h"

namespace trireme {

void EventLog::write(std::int64_t step, std::string_view kind, double seconds,
                     const std::string& detail) {
  Json object = Json::object(
      {{"time", static_cast<std::int64_t>(unix_seconds())}, {"step", step}, {"event", kind}});
  if (seconds > 0.0) object["seconds"] = seconds;
  if (!detail.empty()) object["detail"] = detail;
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  file << object.dump() + "\n" << std::flush;
  if (file || failed_) return;
  failed_ = true;
  report_line(fmt::format("{} cannot be written; the run goes on without it", path_));
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
