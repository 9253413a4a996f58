#include "trireme/plan/step_forecast.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

// The costs of operations that were asked for; most of a step's are alike.
class OperationSeconds {
 public:
  explicit OperationSeconds(const DeviceCosts& device) : device_(device) {}

  double operator()(const ProgramEntry& entry, const std::string& name) {
    const Key key{name, entry.dtype, entry.sizes, entry.flops, entry.bytes};
    const auto [found, added] = seconds_.try_emplace(key, 0.0);
    if (added) found->second = device_.seconds(entry, name) * device_.device().constants.pace;
    return found->second;
  }

 private:
  using Key = std::tuple<std::string, DType, std::array<std::int64_t, 4>, double, double>;
  const DeviceCosts& device_;
  std::map<Key, double> seconds_;
};

// What the programs of some number of micro-batches come to.
struct Replayed {
  Replay replay;
  std::vector<StageForecast> stages;
};

StageForecast stage_of(const DryRunResult& result, const ReplayCosts& costs) {
  StageForecast stage{.place = result.place};
  for (const ProgramEntry& entry : result.program.entries) {
    const bool computes = entry.kind == ProgramEntry::Kind::kCompute;
    if (computes || entry.kind == ProgramEntry::Kind::kCopy) {
      const std::string& name = result.program.name_of(entry);
      stage.operations[computes ? name : "copy " + name] +=
          {costs.compute(entry, name), 1, entry.flops, entry.bytes};
    }
  }
  for (const ProgramCommunication& posted : result.program.communications) {
    const std::string& name = result.program.names[static_cast<std::size_t>(posted.name)];
    const DryLane& lane = result.lanes.at(posted.lane);
    const CommunicationCost cost =
        costs.communicate(name, lane, result.place, posted.peer, posted.bytes);
    StageForecast::Communication& sum = stage.communication[{lane.group.name, name}];
    sum.seconds += cost.latency + cost.flow;
    sum.calls += 1;
    sum.bytes += static_cast<double>(posted.bytes);
  }
  return stage;
}

Replayed replayed(const std::vector<DryRunResult>& results, const ReplayCosts& costs,
                  std::vector<Trace>* traces) {
  std::vector<ReplayedRank> ranks;
  for (const DryRunResult& result : results) {
    ranks.push_back({.rank = result.place, .program = &result.program, .lanes = result.lanes});
  }
  Replayed made{.replay = replay(ranks, costs, traces), .stages = {}};
  for (std::size_t i = 0; i < results.size(); ++i) {
    made.stages.push_back(stage_of(results[i], costs));
    made.stages.back().times = made.replay.ranks[i];
  }
  return made;
}

void extrapolate(double& more, double fewer, int periods) {
  more = std::max(0.0, more + periods * (more - fewer));
}

void extrapolate(std::map<std::string, double>& more, const std::map<std::string, double>& fewer,
                 int periods) {
  for (auto& [name, seconds] : more) {
    const auto found = fewer.find(name);
    extrapolate(seconds, found == fewer.end() ? 0.0 : found->second, periods);
  }
}

template <class Sums, class Add>
void extrapolate_sums(Sums& more, const Sums& fewer, const Add& add) {
  for (auto& [name, sum] : more) {
    const auto found = fewer.find(name);
    add(sum, found == fewer.end() ? typename Sums::mapped_type() : found->second);
  }
}

void extrapolate(StageForecast& more, const StageForecast& fewer, int periods) {
  extrapolate(more.times.compute, fewer.times.compute, periods);
  extrapolate(more.times.slowed, fewer.times.slowed, periods);
  extrapolate(more.times.exposed, fewer.times.exposed, periods);
  extrapolate(more.times.late, fewer.times.late, periods);
  extrapolate(more.times.end, fewer.times.end, periods);
  extrapolate_sums(more.operations, fewer.operations, [&](auto& sum, const auto& less) {
    extrapolate(sum.seconds, less.seconds, periods);
    extrapolate(sum.calls, less.calls, periods);
    extrapolate(sum.flops, less.flops, periods);
    extrapolate(sum.bytes, less.bytes, periods);
  });
  extrapolate_sums(more.communication, fewer.communication, [&](auto& sum, const auto& less) {
    extrapolate(sum.seconds, less.seconds, periods);
    extrapolate(sum.calls, less.calls, periods);
    extrapolate(sum.bytes, less.bytes, periods);
  });
}

}  // namespace

StageForecast::Operations& StageForecast::Operations::operator+=(const Operations& more) {
  seconds += more.seconds;
  calls += more.calls;
  flops += more.flops;
  bytes += more.bytes;
  return *this;
}

const StageForecast& StepForecast::busiest() const {
  TRIREME_CHECK(!stages.empty(), "a forecast of some stages");
  return *std::ranges::max_element(stages, {},
                                   [](const StageForecast& stage) { return stage.times.compute; });
}

double StepForecast::bubble() const {
  double late = 0.0;
  for (const StageForecast& stage : stages) late += stage.times.all_late();
  return late / (seconds * static_cast<double>(stages.size()));
}

std::map<std::string, double> StepForecast::exposed() const {
  std::map<std::string, double> shares;
  const double all = seconds * static_cast<double>(stages.size());
  for (const StageForecast& stage : stages) {
    for (const auto& [name, waited] : stage.times.exposed) shares[name] += waited / all;
  }
  return shares;
}

RecordedStep record_step(const DryRunInput& input) {
  TRIREME_CHECK(input.trains, "the step of a training is forecast");
  const bool nccl = input.device.nccl;
  const bool one_rank = input.grid.ranks() * input.islands == 1;
  const bool captured = input.step.cuda_graphs && (nccl || one_rank);
  const auto [counts, periods] = recorded_micro_batches(input);
  RecordedStep step{.stages = {},
                    .periods = periods,
                    .launches = input.device.on_gpus() && !captured ? 1.0 : 0.0,
                    .nccl = nccl};
  for (const int count : counts) step.stages.push_back(record_stages(input, count));
  return step;
}

StepForecast forecast_step(const DryRunInput& input, const DeviceCosts& device,
                           NetworkCosts& network, std::vector<Trace>* traces) {
  return forecast_step(record_step(input), device, network, traces);
}

StepForecast forecast_step(const RecordedStep& step, const DeviceCosts& device,
                           NetworkCosts& network, std::vector<Trace>* traces) {
  OperationSeconds seconds(device);
  ReplayCosts costs;
  costs.compute = [&](const ProgramEntry& entry, const std::string& name) {
    return seconds(entry, name);
  };
  costs.communicate = [&](const std::string& name, const DryLane& group, int rank, int peer,
                          std::size_t bytes) {
    if (peer < 0) return network.cost(name, group.group, group.ranks, bytes);
    return network.cost(name, group.group, {std::min(rank, peer), std::max(rank, peer)}, bytes);
  };
  costs.beside_communication = device.device().beside_communication;
  costs.beside_computation = device.device().beside_computation;
  costs.launch = step.launches * device.device().launch;
  costs.in_order = step.nccl;
  costs.eager = !step.nccl;

  Replayed made = replayed(step.stages.front(), costs, traces);
  StepForecast forecast{.seconds = made.replay.seconds, .stages = std::move(made.stages)};
  if (step.periods > 0) {
    const Replayed fewer = replayed(step.stages.back(), costs, nullptr);
    extrapolate(forecast.seconds, fewer.replay.seconds, step.periods);
    for (std::size_t i = 0; i < forecast.stages.size(); ++i) {
      extrapolate(forecast.stages[i], fewer.stages[i], step.periods);
    }
  }
  const double computed = forecast.busiest().times.compute;
  const double interval =
      joint_interval(computed, device.device().interval, std::max(0.0, forecast.seconds - computed),
                     network.network().interval);
  forecast.low = forecast.seconds / (1.0 + interval);
  forecast.high = forecast.seconds * (1.0 + interval);
  return forecast;
}

double model_flops(const DryRunInput& input) {
  return input.model.flops_per_sample * static_cast<double>(input.micro) *
         input.step.work.micro_batches() * input.islands;
}

double joint_interval(double seconds_a, double interval_a, double seconds_b, double interval_b) {
  const double all = seconds_a + seconds_b;
  if (all <= 0.0) return 0.0;
  return std::hypot(seconds_a * interval_a, seconds_b * interval_b) / all;
}

}  // namespace trireme::plan
