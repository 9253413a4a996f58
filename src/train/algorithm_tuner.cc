#include "train/algorithm_tuner.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/topology/planner.h"

#include "train/tracer.h"

namespace trireme {
namespace {

constexpr std::size_t kMostSizes = 16;  // of a communicator, those that take the most time
constexpr std::size_t kMostAlgorithms = 3;
constexpr double kFarSlower = 3.0;  // times the fastest, by the model: not worth a try
// For an estimate of memory that knows nothing of trials.
constexpr double kMostWorkspace = 64 << 20;
// What has not been called often enough by then is left as it is.
constexpr int kMostSteps = 100;

constexpr std::size_t kScratchBegin = 4096, kScratchFactor = 4;
constexpr std::size_t kScratchEnd = std::size_t{64} << 20;
// Larger buffers are not tried once a call takes that long.
constexpr double kScratchSeconds = 0.02;
constexpr std::array kOfScratch = {Collective::kAllReduce, Collective::kReduceScatter,
                                   Collective::kAllGather};

PredictedNetwork network_among(const PlannedComm& of, const NetworkOfJob& known) {
  const std::size_t worthwhile = of.plan->worthwhile_bytes;
  if (known.network) {
    return {blocks_among(known.network->blocks, of.ranks), known.network->rates, worthwhile};
  }
  return {*of.plan->blocks, assumed_rates(*of.plan->blocks), worthwhile};
}

// What stands behind the name of a table.
Algorithm carried_by(Collective collective, Algorithm named) {
  const auto known = algorithms_of(collective);
  const bool is_known =
      named == Algorithm::kLibrary || std::ranges::find(known, named) != known.end();
  return is_known ? named : known.front();
}

void call_once(Communicator& comm, Collective collective, const Tensor& all, const Tensor& mine) {
  if (collective == Collective::kReduceScatter) {
    comm.reduce_scatter(Stream(), all, mine, ReduceOp::kSum).wait_host();
  } else if (collective == Collective::kAllGather) {
    comm.all_gather(Stream(), mine, all).wait_host();
  } else {
    comm.all_reduce(Stream(), all, ReduceOp::kSum).wait_host();
  }
}

std::string described(const TunedCollective& one) {
  std::string times;
  for (const auto& [algorithm, seconds] : one.tried) {
    times += fmt::format("{}{} {}", times.empty() ? "" : ", ", algorithm, time_text(seconds));
  }
  const std::string instead =
      one.algorithm == one.planned ? "" : fmt::format(" instead of {}", one.planned);
  return fmt::format("{} of {} by {}{} ({})", one.collective, size_text(one.bytes), one.algorithm,
                     instead, times);
}

}  // namespace

AlgorithmTuner::AlgorithmTuner(Runtime& runtime, const ProcessGrid& grid,
                               const NetworkOfJob& network, const Config::Comm& comm)
    : runtime_(runtime),
      network_(network),
      any_order_(comm.order == "any"),
      chosen_(chosen_algorithms(comm)),
      clock_offset_ns_(clock_offsets(runtime)[static_cast<std::size_t>(runtime.node())]) {
  std::vector<Communicator*> of_grid = grid.communicators();
  std::erase(of_grid, &grid.world());  // little travels between all ranks
  tune(planned_communicators(runtime, of_grid));
}

void AlgorithmTuner::tune(std::vector<PlannedComm> communicators) {
  for (PlannedComm& one : communicators) {
    one.plan->trials = std::make_shared<AlgorithmTrials>();
    if (!any_order_) one.plan->of_rounded_sums = one.plan->algorithms;
    communicators_.push_back({.of = std::move(one)});
  }
}

void AlgorithmTuner::steps_begin(const parallel::Stage& stage) {
  if (any_order_) return;
  tune(planned_communicators(runtime_, stage.communicators()));
  for (const Tuned& tuned : communicators_) tuned.of.plan->trials->watch();
}

bool AlgorithmTuner::is_free(Collective collective) const {
  return std::ranges::find(chosen_, collective, &ChosenAlgorithm::collective) == chosen_.end();
}

// Called on one rank, for the others to follow.
std::vector<AlgorithmTrial> AlgorithmTuner::trials_for(
    const Tuned& tuned, const std::vector<AlgorithmTrials::Carried>& carried) const {
  PredictedNetwork network = network_among(tuned.of, network_);
  const int ranks = tuned.of.comm->size();
  std::vector<AlgorithmTrial> trials;
  for (const AlgorithmTrials::Carried& one : carried) {
    if (trials.size() == kMostSizes) break;
    if (!is_free(one.collective)) continue;
    const Algorithm usual = carried_by(
        one.collective, tuned.of.plan->algorithms.choose(one.collective, one.bytes, ranks));
    AlgorithmTrial trial{one.collective, one.bytes, {usual}};
    const auto likely = candidates(network.predictor, one.collective, one.bytes, any_order_);
    for (const Candidate& candidate : likely) {
      if (trial.algorithms.size() == kMostAlgorithms) break;
      if (candidate.prediction.seconds > kFarSlower * likely.front().prediction.seconds) break;
      const bool fits =
          whole_workspace(one.collective, candidate.algorithm, one.bytes, ranks) <= kMostWorkspace;
      if (fits && candidate.algorithm != usual) trial.algorithms.push_back(candidate.algorithm);
    }
    // Nothing predicts how long MPI takes.
    if (any_order_ && usual != Algorithm::kLibrary) trial.algorithms.push_back(Algorithm::kLibrary);
    if (trial.algorithms.size() > 1) trials.push_back(std::move(trial));
  }
  return trials;
}

void AlgorithmTuner::step_done() {
  if (any_order_) return;
  for (Tuned& tuned : communicators_) {
    if (tuned.state == Tuned::State::kTrying) {
      end_trials(tuned);
    } else if (tuned.state == Tuned::State::kWatching) {
      begin_trials(tuned);
    }
  }
}

void AlgorithmTuner::begin_trials(Tuned& tuned) {
  AlgorithmTrials& trials = *tuned.of.plan->trials;
  const auto carried = trials.carried();
  trials.stop();
  auto wanted = trials_from_text(
      tuned.of.comm->read_once([&] { return trials_to_text(trials_for(tuned, carried)); }));
  if (wanted.empty()) {
    tuned.state = Tuned::State::kDone;
    return;
  }
  trials.begin(std::move(wanted));
  tuned.state = Tuned::State::kTrying;
}

void AlgorithmTuner::end_trials(Tuned& tuned) {
  AlgorithmTrials& trials = *tuned.of.plan->trials;
  if (!trials.all_called() && ++tuned.steps < kMostSteps) return;
  const auto outcomes = outcomes_of(tuned);
  if (!outcomes) return;
  follow(tuned, *outcomes);
  record(tuned, *outcomes);
  tuned.state = Tuned::State::kDone;
}

// What holds for a size also holds for those near it, up to the next one that was tried.
void AlgorithmTuner::follow(Tuned& tuned, const std::vector<TrialOutcome>& outcomes) {
  AlgorithmTable& table = tuned.of.plan->algorithms;
  for (const auto& [trial, seconds, chosen] : outcomes) {
    std::size_t first = trial.bytes / 4 * 3, last = trial.bytes + trial.bytes / 3;
    for (const TrialOutcome& other : outcomes) {
      if (other.trial.collective != trial.collective) continue;
      const std::size_t between = (other.trial.bytes + trial.bytes) / 2;
      if (other.trial.bytes < trial.bytes) first = std::max(first, between + 1);
      if (other.trial.bytes > trial.bytes) last = std::min(last, between);
    }
    table = table.with(trial.collective, first, last, chosen, tuned.of.comm->size());
  }
}

std::optional<std::vector<TrialOutcome>> AlgorithmTuner::outcomes_of(const Tuned& tuned) const {
  AlgorithmTrials& trials = *tuned.of.plan->trials;
  trials.stop();  // the sum below must not count as a call
  std::vector<std::int64_t> times = trials.times(clock_offset_ns_);
  tuned.of.comm->all_reduce_host(std::span<std::int64_t>(times), ReduceOp::kMax);
  if (times.back() > 0) return {};
  return trials.judge(times);
}

void AlgorithmTuner::record(const Tuned& tuned, const std::vector<TrialOutcome>& outcomes) {
  std::string line;
  for (const auto& [trial, seconds, chosen] : outcomes) {
    TunedCollective one{.communicator = tuned.of.name,
                        .collective = std::string(name_of(trial.collective)),
                        .bytes = trial.bytes,
                        .algorithm = std::string(name_of(chosen)),
                        .planned = std::string(name_of(trial.algorithms.front())),
                        .tried = {}};
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      one.tried.emplace_back(name_of(trial.algorithms[i]), seconds[i]);
    }
    line += (line.empty() ? "" : "; ") + described(one);
    found_.push_back(std::move(one));
  }
  if (line.empty()) return;
  const std::string name = tuned.of.name + ": ";
  if (!news_.empty() && news_.back().starts_with(name)) {
    news_.back() += "; " + line;
  } else {
    news_.push_back(name + line);
  }
}

std::vector<std::string> AlgorithmTuner::news() {
  return std::exchange(news_, {});
}

void AlgorithmTuner::try_on_scratch(std::size_t most_bytes) {
  if (!any_order_) return;
  for (Tuned& tuned : communicators_) {
    const std::size_t most = std::min(most_bytes, kScratchEnd);
    for (std::size_t bytes = kScratchBegin; bytes <= most; bytes *= kScratchFactor) {
      if (try_size(tuned, bytes) > kScratchSeconds) break;
    }
    tuned.state = Tuned::State::kDone;
  }
}

// Returns the time of the slowest algorithm. What is found holds from half of the size on, and for
// all larger ones, until one of them is tried.
double AlgorithmTuner::try_size(Tuned& tuned, std::size_t bytes) {
  Communicator& comm = *tuned.of.comm;
  AlgorithmTrials& trials = *tuned.of.plan->trials;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t part = std::max<std::size_t>(bytes / sizeof(float) / ranks, 1);
  std::vector<AlgorithmTrials::Carried> sizes;
  for (const Collective one : kOfScratch)
    sizes.push_back({one, part * ranks * sizeof(float), 1, 0});
  const auto wanted =
      trials_from_text(comm.read_once([&] { return trials_to_text(trials_for(tuned, sizes)); }));
  std::vector<float> whole(part * ranks), own(part);
  const Tensor all = Tensor::wrap(std::span<float>(whole));
  const Tensor mine = Tensor::wrap(std::span<float>(own));
  double slowest = 0.0;
  for (const AlgorithmTrial& trial : wanted) {
    trials.begin({trial});
    while (!trials.all_called()) {
      comm.barrier().wait_host();
      call_once(comm, trial.collective, all, mine);
    }
    const auto outcomes = outcomes_of(tuned);
    TRIREME_CHECK(outcomes.has_value(), "a call that was waited for has not ended");
    AlgorithmTable& table = tuned.of.plan->algorithms;
    const std::size_t first = bytes == kScratchBegin ? 0 : bytes / 2 + 1;
    for (const TrialOutcome& one : *outcomes) {
      table =
          table.with(trial.collective, first, AlgorithmTable::kAnySize, one.chosen, comm.size());
      slowest = std::max(slowest, *std::ranges::max_element(one.seconds));
    }
    record(tuned, *outcomes);
  }
  return slowest;
}

}  // namespace trireme
