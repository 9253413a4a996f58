#include "trireme/report/run_events.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/log.h"
#include "trireme/base/wall_clock.h"

namespace trireme {

void EventLog::write(std::int64_t step, std::string_view kind, double seconds,
                     const std::string& detail) {
  nlohmann::ordered_json object = {
      {"time", static_cast<std::int64_t>(unix_seconds())}, {"step", step}, {"event", kind}};
  if (seconds > 0.0) object["seconds"] = seconds;
  if (!detail.empty()) object["detail"] = detail;
  using nlohmann::json;
  const std::string line = object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  file << line << std::flush;
  if (file || failed_) return;
  failed_ = true;
  report_line(fmt::format("{} cannot be written; the run goes on without it", path_));
}

std::vector<RunEvent> read_events(const std::string& path) {
  std::vector<RunEvent> events;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    try {
      const nlohmann::json object = nlohmann::json::parse(line);
      events.push_back({object.at("time").get<std::int64_t>(),
                        object.at("step").get<std::int64_t>(),
                        object.at("event").get<std::string>(), object.value("seconds", 0.0),
                        object.value("detail", "")});
    } catch (const nlohmann::json::exception&) {
      // Half written, by a run that was killed.
    }
  }
  return events;
}

}  // namespace trireme
