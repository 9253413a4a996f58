#include "trireme/report/run_events.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/wall_clock.h"
#include "trireme/io/log_file.h"

namespace trireme {
namespace {

// Returns whether text that is appended to the file begins a new line.
bool ends_with_line(const std::string& path) {
  auto file = FileReader::open_if_there(path, ExitStatus::kRunFolder);
  const std::int64_t bytes = file ? file->facts().bytes : 0;
  if (bytes == 0) return true;
  char last = 0;
  file->seek(bytes - 1);
  return file->read(&last, 1) == 1 && last == '\n';
}

std::optional<double> seconds_in_environment(const char* name) {
  const char* text = std::getenv(name);
  if (!text) return {};
  const std::string_view value = text;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size() || seconds <= 0) return {};
  return static_cast<double>(seconds);
}

// Limits times to the end of the year 9999, since the file may hold any number.
double number_in(const Json& object, std::string_view key) {
  constexpr double kMost = 253402300799.0;
  const Json* found = object.find(key);
  return found && found->is_number() ? std::clamp(found->number(), 0.0, kMost) : 0.0;
}

std::optional<double> time_in(const Json& object, std::string_view key) {
  const double time = number_in(object, key);
  return time > 0.0 ? std::optional(time) : std::nullopt;
}

std::string text_in(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  return found ? found->text() : "";
}

}  // namespace

JobTimes job_times_here() {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (!job || !*job) return {};
  // Only a script that runs nothing but this run knows that the job began for it. A job that was
  // submitted in another one has that one's times.
  const char* of = std::getenv("TRIREME_JOB_OF");
  if (of && std::string_view(of) != job) return {job, {}, {}};
  return {job, seconds_in_environment("TRIREME_JOB_SUBMITTED"),
          seconds_in_environment("TRIREME_JOB_STARTED")};
}

bool tells_of_an_end(const RunEvent& event) {
  return event.kind == "failure" || event.kind == "requeue";
}

void EventLog::write(std::int64_t step, std::string_view kind, double seconds,
                     const std::string& detail) {
  write({.step = step, .kind = std::string(kind), .seconds = seconds, .detail = detail});
}

void EventLog::write(const RunEvent& event) {
  Json object = Json::object(
      {{"time", unix_seconds_for_records()}, {"step", event.step}, {"event", event.kind}});
  if (event.seconds > 0.0) object["seconds"] = event.seconds;
  if (!event.detail.empty()) object["detail"] = event.detail;
  if (event.until > 0.0) object["until"] = event.until;
  if (!event.job.job.empty()) object["job"] = event.job.job;
  if (event.job.submitted) object["submitted"] = *event.job.submitted;
  if (event.job.started) object["job_started"] = *event.job.started;
  if (!event.places.empty()) object["places"] = event.places;
  try {
    // A killed process may have left half a line, which must not spoil this one.
    const bool begins_line = ends_with_line(path_);
    LogFile(path_).append((begins_line ? "" : "\n") + object.dump() + "\n");
  } catch (const RunFolderError& error) {
    if (std::exchange(failed_, true)) return;
    report_line(fmt::format("{}; the run goes on without it", error.what()));
  }
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

std::optional<double> last_checkpoint_seconds(std::span<const RunEvent> events) {
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->kind == "checkpoint" && event->seconds > 0.0) return event->seconds;
  }
  return {};
}

std::vector<RunEvent> read_events(const std::string& path) {
  std::vector<RunEvent> events;
  auto file = FileReader::open_if_there(path, ExitStatus::kRunFolder);
  for (std::string line; file && file->line(line);) {
    try {
      const Json object = Json::parse(line);
      events.push_back({.time = number_in(object, "time"),
                        .step = object.at("step").integer(),
                        .kind = object.at("event").text(),
                        .seconds = number_in(object, "seconds"),
                        .detail = text_in(object, "detail"),
                        .until = number_in(object, "until"),
                        .job = {text_in(object, "job"), time_in(object, "submitted"),
                                time_in(object, "job_started")},
                        .places = text_in(object, "places")});
    } catch (const JsonError&) {
      // A killed run left the line half written.
    }
  }
  return events;
}

}  // namespace trireme
