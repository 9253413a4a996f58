#include "trireme/report/interruption.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/report/run_events.h"

namespace trireme {
namespace {

// Returns the step of the last whole line. Reads only the end of the file, which grows with the
// run.
std::int64_t last_step_in(FileReader& file) {
  constexpr std::int64_t kTail = 64 << 10;
  file.seek(std::max<std::int64_t>(0, file.facts().bytes - kTail));
  std::int64_t step = 0;
  for (std::string line; file.line(line);) {
    const Json object = Json::parse_or_null(line);
    const Json* found = object.find("step");
    if (found && found->is_integer()) step = found->integer();
  }
  return step;
}

}  // namespace

std::optional<Interruption> read_interruption(const std::string& folder) {
  auto metrics = FileReader::open_if_there(folder + "/metrics.jsonl", ExitStatus::kRunFolder);
  if (!metrics) return std::nullopt;
  Interruption found;
  found.last_step = last_step_in(*metrics);
  if (found.last_step == 0) return std::nullopt;
  found.last_time = 1e-9 * static_cast<double>(metrics->facts().changed_ns);
  std::vector<RunEvent> events = read_events(folder + "/events.jsonl");
  // This start may already have recorded a branch, and steps that it discards. What the job script
  // did after the last start ended does not say why that start ended.
  const auto says_why = [](const RunEvent& event) {
    return event.kind != "branch" && event.kind != "discard" && event.kind != "requeue";
  };
  while (!events.empty() && !says_why(events.back())) events.pop_back();
  if (!events.empty()) {
    const RunEvent& last = events.back();
    found.on_purpose = last.kind == "stop" || last.kind == "finish";
    if (last.kind == "failure") found.cause = last.detail;
  }
  return found;
}

std::string cost_of(const Interruption& interruption, std::int64_t step, double seconds) {
  const std::int64_t repeated = std::max<std::int64_t>(0, interruption.last_step - step);
  const std::string cause =
      interruption.cause.empty() ? "" : fmt::format(" ({})", interruption.cause);
  return fmt::format("{}{} cost {:.1f} s until the next step; {}",
                     interruption.on_purpose ? "a stop" : "a failure", cause, seconds,
                     repeated == 0   ? "no step is repeated"
                     : repeated == 1 ? "1 step is repeated"
                                     : fmt::format("{} steps are repeated", repeated));
}

}  // namespace trireme
