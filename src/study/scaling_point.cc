// One point of a study, on the ranks that a launcher has started for it.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/io/whole_file.h"
#include "trireme/report/run_events.h"
#include "trireme/report/run_history.h"
#include "trireme/train/checkpoint_cadence.h"
#include "trireme/train/trainer.h"

#include "study/scaling_files.h"

namespace trireme::scaling {
namespace {

// The time of one checkpoint, shared by the steps between two: those of the study's configuration.
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
  return {.tokens_per_second = mean.tokens_per_second,
          .step_seconds = mean.step_seconds,
          .communication_seconds = mean.exposed_comm_share * mean.step_seconds,
          .data_seconds = mean.wait_data_share * mean.step_seconds,
          .checkpoint_seconds = checkpoint_seconds_a_step(run, request, mean.step_seconds),
          .memory_bandwidth = bandwidth,
          .steps = static_cast<int>(mean.steps)};
}

}  // namespace

std::string result_text(const Measurement& m) {
  return Json::object({{"tokens_per_s", m.tokens_per_second},
                       {"step_s", m.step_seconds},
                       {"comm_s", m.communication_seconds},
                       {"wait_data_s", m.data_seconds},
                       {"checkpoint_s", m.checkpoint_seconds},
                       {"memory_bytes_per_s", m.memory_bandwidth},
                       {"steps", m.steps}})
             .dump(2) +
         "\n";
}

std::optional<Measurement> read_result(const std::string& path) {
  std::ifstream file(path);
  try {
    const Json object = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    return Measurement{.tokens_per_second = object.at("tokens_per_s").number(),
                       .step_seconds = object.at("step_s").number(),
                       .communication_seconds = object.at("comm_s").number(),
                       .data_seconds = object.at("wait_data_s").number(),
                       .checkpoint_seconds = object.at("checkpoint_s").number(),
                       .memory_bandwidth = object.at("memory_bytes_per_s").number(),
                       .steps = object.at("steps").small_integer()};
  } catch (const JsonError&) {
    return {};  // not there, or not complete
  }
}

std::string request_text(const PointRequest& request) {
  return Json::object({{"warmup", request.warmup},
                       {"checkpoint_every", request.checkpoint_every},
                       {"checkpoint_mtbf_hours", request.checkpoint_mtbf_hours}})
             .dump() +
         "\n";
}

Config read_point(Communicator& comm, const std::string& folder) {
  const std::string path = folder + "/config.ini";
  Config config = config_from_ini(comm.read_once([&] {
    std::ifstream file(path);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) {
      throw ConfigError(
          fmt::format("--point {}: no point of a study is there: {} cannot be read", folder, path));
    }
    return text.str();
  }),
                                  path);
  check_config(config);
  return config;
}

ExitStatus run_point(Runtime& runtime, const std::string& folder, const Config& config,
                     const StopSignals& signals) {
  ComputeDevice device = choose_compute_device(runtime, device_request(config));
  const double bandwidth = measure_memory_bandwidth(runtime.world(), device.context);
  const ExitStatus status = train(runtime, config, signals, std::move(device));
  if (status != ExitStatus::kDone || runtime.rank() != 0) return status;
  std::ifstream file(folder + "/point.json");
  const Json object = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  const PointRequest request{object.at("warmup").small_integer(),
                             object.at("checkpoint_every").integer(),
                             object.at("checkpoint_mtbf_hours").number()};
  const Measurement measured = measured_in(config.run.folder, request, bandwidth);
  write_whole_file(folder + "/result.json", result_text(measured));
  std::error_code ignored;  // it was written to be timed
  std::filesystem::remove_all(config.run.folder + "/checkpoints", ignored);
  return status;
}

}  // namespace trireme::scaling
