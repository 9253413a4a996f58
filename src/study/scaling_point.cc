// One point of a study, on the ranks that a launcher has started for it.
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"
#include "trireme/io/whole_file.h"
#include "trireme/report/run_events.h"
#include "trireme/report/run_history.h"
#include "trireme/study/conditions.h"
#include "trireme/train/checkpoint_cadence.h"
#include "trireme/train/trainer.h"

#include "study/scaling_files.h"

namespace trireme::scaling {
namespace {

// Returns the time of one checkpoint divided by the steps between two checkpoints in the study's
// configuration.
double checkpoint_seconds_a_step(const std::string& run, const PointRequest& request, double step) {
  double seconds = 0.0;
  for (const RunEvent& event : read_events(run + "/events.jsonl")) {
    if (event.kind == "checkpoint") seconds = event.seconds;
  }
  if (request.checkpoint_mtbf_hours > 0.0) {
    return seconds * step /
           best_checkpoint_interval(seconds, 3600.0 * request.checkpoint_mtbf_hours);
  }
  return request.checkpoint_every > 0 ? seconds / static_cast<double>(request.checkpoint_every)
                                      : 0.0;
}

Measurement measured_in(const std::string& run, const PointRequest& request, double bandwidth) {
  const RunHistory history(run);
  const auto& all = history.steps();
  const auto warmup = static_cast<std::size_t>(request.warmup);
  TRIREME_CHECK(all.size() > warmup, "a point of a study without a measured step");
  const StepAverages mean = average(std::span(all).subspan(warmup));
  return {.unit = history.unit(),
          .units_per_second = mean.units_per_second,
          .step_seconds = mean.step_seconds,
          .communication_seconds = mean.exposed_comm_share * mean.step_seconds,
          .data_seconds = mean.wait_data_share * mean.step_seconds,
          .checkpoint_seconds = checkpoint_seconds_a_step(run, request, mean.step_seconds),
          .memory_bandwidth = bandwidth,
          .steps = static_cast<int>(mean.steps)};
}

Conditions conditions_in(const Json& object) {
  const auto text = [&](const char* key) { return printable(object.at(key).text()); };
  Conditions conditions{.program = text("program"),
                        .processor = text("processor"),
                        .device = text("device"),
                        .mpi = text("mpi"),
                        .network = text("network"),
                        .launcher = text("launcher"),
                        .job = text("job"),
                        .hosts = {}};
  for (const Json& host : object.at("hosts").items()) {
    conditions.hosts.push_back(printable(host.text()));
  }
  // Earlier versions did not write it.
  if (const Json* processors = object.find("processors")) {
    conditions.processors = processors->number();
  }
  return conditions;
}

// The text of a file of a study; nothing where it or its folder is absent.
std::optional<std::string> read_if_in_folder(const std::string& path) {
  if (!look_ahead(path, ExitStatus::kRunFolder).is_there()) return {};
  return read_if_there(path, ExitStatus::kRunFolder);
}

// Both are collective over comm.
Config read_config(Communicator& comm, const std::string& folder) {
  const std::string path = folder + "/config.ini";
  Config config = config_from_ini(comm.read_once([&] {
    const auto text = read_if_in_folder(path);
    if (!text) {
      throw ConfigError(
          fmt::format("--point {}: no point of a study is there: {} is missing", folder, path));
    }
    return *text;
  }),
                                  path);
  config.run.resume = "never";  // a point is measured as a whole
  check_config(config);
  return config;
}

PointRequest read_request(Communicator& comm, const std::string& folder, std::int64_t steps) {
  const std::string path = folder + "/point.json";
  const std::string text = comm.read_once([&] { return read_if_in_folder(path).value_or(""); });
  return request_in(text, path, steps);
}

}  // namespace

PointRequest request_in(const std::string& text, const std::string& path, std::int64_t steps) {
  std::string why = "it has numbers that no point has";
  try {
    const Json object = Json::parse(text);
    const Json* launcher = object.find("launcher");  // earlier versions did not write it
    const PointRequest request{object.at("warmup").small_integer(),
                               object.at("checkpoint_every").integer(),
                               object.at("checkpoint_mtbf_hours").number(),
                               launcher == nullptr ? kNotKnown : launcher->text()};
    if (request.warmup >= 1 && request.warmup < steps && request.checkpoint_every >= 0 &&
        request.checkpoint_mtbf_hours >= 0.0) {
      return request;
    }
  } catch (const JsonError& error) {
    why = error.what();
  }
  throw RunFolderError(
      fmt::format("{}: damaged ({}): the trireme scale command of this study writes it anew and "
                  "measures the point again",
                  path, shown(why)));
}

std::string result_text(const Measurement& m, const Conditions& c) {
  Json hosts = Json::array();
  for (const std::string& host : c.hosts) hosts.push_back(host);
  return Json::object({{m.unit.rate_key(), m.units_per_second},
                       {"step_s", m.step_seconds},
                       {"comm_s", m.communication_seconds},
                       {"wait_data_s", m.data_seconds},
                       {"checkpoint_s", m.checkpoint_seconds},
                       {"memory_bytes_per_s", m.memory_bandwidth},
                       {"steps", m.steps},
                       {"ran_on", Json::object({{"program", c.program},
                                                {"processor", c.processor},
                                                {"device", c.device},
                                                {"mpi", c.mpi},
                                                {"network", c.network},
                                                {"launcher", c.launcher},
                                                {"job", c.job},
                                                {"hosts", hosts},
                                                {"processors", c.processors}})}})
             .dump(2) +
         "\n";
}

std::optional<PointResult> read_result(const std::string& path, const Point& point) {
  const std::optional<std::string> text = read_if_in_folder(path);
  if (!text) return {};
  try {
    const Json object = Json::parse(*text);
    const tasks::Unit unit = tasks::unit_in(object);
    PointResult result{.point = point,
                       .measured = {.unit = unit,
                                    .units_per_second = object.at(unit.rate_key()).number(),
                                    .step_seconds = object.at("step_s").number(),
                                    .communication_seconds = object.at("comm_s").number(),
                                    .data_seconds = object.at("wait_data_s").number(),
                                    .checkpoint_seconds = object.at("checkpoint_s").number(),
                                    .memory_bandwidth = object.at("memory_bytes_per_s").number(),
                                    .steps = object.at("steps").small_integer()},
                       .conditions = {}};
    if (!(result.measured.units_per_second > 0.0)) return {};
    if (const Json* ran_on = object.find("ran_on")) result.conditions = conditions_in(*ran_on);
    return result;
  } catch (const JsonError&) {
    return {};  // damaged: the point is measured again
  }
}

std::string request_text(const PointRequest& request) {
  return Json::object({{"warmup", request.warmup},
                       {"checkpoint_every", request.checkpoint_every},
                       {"checkpoint_mtbf_hours", request.checkpoint_mtbf_hours},
                       {"launcher", request.launcher}})
             .dump() +
         "\n";
}

ExitStatus run_point(Runtime& runtime, const std::string& folder, const std::string& program,
                     const StopSignals& signals) {
  const Config config = read_config(runtime.world(), folder);
  const PointRequest request = read_request(runtime.world(), folder, config.run.steps);
  ComputeDevice device = choose_compute_device(runtime, device_request(config));
  Conditions conditions = conditions_of(runtime, device);
  conditions.program = program;
  conditions.launcher = request.launcher;
  const double bandwidth = measure_memory_bandwidth(runtime.world(), device.context);
  const ExitStatus status = train(runtime, config, signals, std::move(device));
  if (status != ExitStatus::kDone || runtime.rank() != 0) return status;
  const Measurement measured = measured_in(config.run.folder, request, bandwidth);
  write_whole_file(folder + "/result.json", result_text(measured, conditions));
  std::error_code ignored;  // they were written only to be timed
  std::filesystem::remove_all(config.run.folder + "/checkpoints", ignored);
  return status;
}

}  // namespace trireme::scaling
