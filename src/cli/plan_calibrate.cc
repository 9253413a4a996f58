#include "cli/plan_calibrate.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/plan/calibration.h"
#include "trireme/plan/step_forecast.h"
#include "trireme/report/run_history.h"

#include "cli/outputs.h"

namespace trireme::cli {
namespace {

// A constant that a calibration fits, and where it is.
struct Fitted {
  plan::CalibrationConstant constant;
  double plan::DeviceDescription::Constants::*of_device = nullptr;
  double plan::NetworkDescription::Constants::*of_network = nullptr;
};

// Those that matter most come first: of few runs only as many are fitted as there are runs.
std::vector<Fitted> constants_of(const Planner& planner, bool communicates) {
  const plan::DeviceDescription::Constants& device = planner.device().constants;
  const plan::NetworkDescription::Constants& network = planner.network().constants;
  std::vector<Fitted> all;
  const auto add_device = [&](const char* name, double plan::DeviceDescription::Constants::*member,
                              double low, double high) {
    const double start = std::clamp(device.*member, low, high);
    all.push_back({{name, start, low, high}, member, nullptr});
  };
  const auto add_network = [&](const char* name,
                               double plan::NetworkDescription::Constants::*member, double low,
                               double high) {
    const double start = std::clamp(network.*member, low, high);
    all.push_back({{name, start, low, high}, nullptr, member});
  };
  using Device = plan::DeviceDescription::Constants;
  using Network = plan::NetworkDescription::Constants;
  add_device("pace", &Device::pace, 0.1, 100.0);
  if (communicates) add_network("network efficiency", &Network::efficiency, 0.02, 1.0);
  add_device("memory", &Device::memory, 0.02, 1.0);
  add_device("product", &Device::product, 0.02, 1.0);
  if (communicates) add_network("network latency", &Network::latency, 0.1, 100.0);
  add_device("attention", &Device::attention, 0.01, 1.0);
  add_device("start", &Device::start, 1e-9, 1e-3);
  if (communicates) add_network("network start", &Network::start, 1e-8, 1e-2);
  return all;
}

// A run that has measured its step.
struct MeasuredRun {
  std::string folder;
  double seconds = 0.0;
  plan::RecordedStep step;
  GridShape grid;
  int islands = 1;
};

MeasuredRun read_run(const std::string& folder, const PlanRequest& request) {
  RunHistory history(folder);
  history.update();
  if (!history.config()) {
    throw ConfigError(fmt::format("--calibrate {}: the run's config.ini cannot be read", folder));
  }
  Config config = *history.config();
  const std::optional<int> micro = config.batch.micro.number();
  if (!config.batch.micro.is_known() && micro) config.batch.micro.settle(*micro);
  const std::optional<double> seconds = measured_step(history.steps());
  if (!seconds) {
    throw ConfigError(
        fmt::format("--calibrate {}: {} are too few to measure one: six or more are needed", folder,
                    counted(std::ssize(history.steps()), "step")));
  }
  config.run.device = "auto";  // what it was is in the run's metrics
  const Planner planner(request, config, {});
  if ((history.steps().back().device_memory_bytes > 0.0) != planner.device().gpu) {
    throw ConfigError(fmt::format("--calibrate {}: the run computed on {}, but {} is a {}", folder,
                                  planner.device().gpu ? "processors" : "GPUs",
                                  printable(planner.device().name),
                                  planner.device().gpu ? "GPU" : "processor"));
  }
  const int ranks = config.grid.shape().ranks();
  const plan::DryRunInput input = planner.input(layout_of(config, ranks));
  return {.folder = folder,
          .seconds = *seconds,
          .step = plan::record_step(input),
          .grid = input.grid,
          .islands = config.grid.islands};
}

double predicted(const MeasuredRun& run, const plan::DeviceDescription& device,
                 const plan::NetworkDescription& network) {
  const plan::DeviceCosts costs(device);
  plan::NetworkCosts on_grid(network, run.grid, run.islands);
  return plan::forecast_step(run.step, costs, on_grid).seconds;
}

}  // namespace

ExitStatus calibrate_plan(const std::vector<std::string>& folders, const PlanRequest& request,
                          const std::string& output) {
  NamedOutput file(output);
  std::vector<std::shared_ptr<const MeasuredRun>> runs;
  bool communicates = false;
  std::set<std::string> seen;
  for (const std::string& folder : folders) {
    if (!seen.insert(std::filesystem::weakly_canonical(folder)).second) {
      throw ConfigError(fmt::format("--calibrate {}: the run is given twice", shown(folder)));
    }
    runs.push_back(std::make_shared<MeasuredRun>(read_run(folder, request)));
    communicates |= runs.back()->grid.ranks() * runs.back()->islands > 1;
  }
  const Planner planner(request, Config(), {});
  std::vector<Fitted> fitted = constants_of(planner, communicates);
  const std::size_t left_out = fitted.size() - std::min(fitted.size(), runs.size());
  fitted.resize(fitted.size() - left_out);
  const auto described = [&](const std::vector<double>& values) {
    std::pair made{planner.device(), planner.network()};
    for (std::size_t i = 0; i < fitted.size(); ++i) {
      if (fitted[i].of_device) made.first.constants.*fitted[i].of_device = values[i];
      if (fitted[i].of_network) made.second.constants.*fitted[i].of_network = values[i];
    }
    return made;
  };
  std::vector<plan::CalibrationConstant> constants;
  for (const Fitted& one : fitted) constants.push_back(one.constant);
  std::vector<plan::CalibrationRow> rows;
  for (const auto& run : runs) {
    rows.push_back({.name = run->folder,
                    .table = run->folder,
                    .measured = run->seconds,
                    .predict = [run, described](const std::vector<double>& values) {
                      const auto [device, network] = described(values);
                      return predicted(*run, device, network);
                    }});
  }
  const plan::Calibration calibration = plan::calibrate(constants, rows);
  for (const std::string& line : plan::calibration_lines(calibration)) print_line(line);
  if (left_out > 0) {
    print_line(
        fmt::format("{} of a machine are left as they are: with more runs than constants "
                    "they are fitted, too",
                    counted(static_cast<std::int64_t>(left_out), "constant")));
  }
  if (!file.is_there()) return ExitStatus::kDone;
  auto [device, network] = described(calibration.values());
  device.evidence = plan::Evidence::kMeasured;
  if (calibration.intervals.rows) device.interval = *calibration.intervals.rows;
  file.write_whole(plan::write_site({device, network.name, network.constants}));
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
